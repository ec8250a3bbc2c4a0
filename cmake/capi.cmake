# libtracestep_attention.so: the attention kernels behind the C interface of
# src/capi/tracestep_attention.h, for programs that know nothing else of tracestep. Of the CUDA back
# end's archive it takes what it calls, the attention kernels alone.
if(TARGET tracestep_backends_cuda)
  add_library(tracestep_attention SHARED src/capi/tracestep_attention.cpp)
  target_compile_definitions(tracestep_attention PRIVATE TRACESTEP_WITH_CUDA)
  target_include_directories(tracestep_attention PRIVATE src)
  target_compile_features(tracestep_attention PRIVATE cxx_std_20)
  target_link_libraries(tracestep_attention PRIVATE $<TARGET_FILE:tracestep_backends_cuda>
                                                    CUDA::cudart_static)
  target_link_options(tracestep_attention PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
  add_dependencies(tracestep_attention tracestep_backends_cuda)
  set_target_properties(tracestep_attention PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                        PUBLIC_HEADER src/capi/tracestep_attention.h)
  add_dependencies(program tracestep_attention)
endif()

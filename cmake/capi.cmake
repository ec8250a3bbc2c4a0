# libtracestep_attention.so: the attention kernels and the C interface of src/capi in front of them,
# for programs that know nothing else of tracestep. The CUDA back end calls the same library, so the
# kernels are nowhere else. CUDA's runtime is linked in and hidden.
file(GLOB attention_sources CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/src/capi/tracestep_attention.cpp
     ${CMAKE_SOURCE_DIR}/src/backends/cuda/attention/*.cpp
     ${CMAKE_SOURCE_DIR}/src/backends/cuda/attention/*.cu)
add_library(tracestep_attention SHARED ${attention_sources})
target_compile_options(tracestep_attention PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
target_link_libraries(tracestep_attention PRIVATE tracestep_options CUDA::cudart_static)
set(exports ${CMAKE_SOURCE_DIR}/src/capi/tracestep_attention.map)
target_link_options(tracestep_attention PRIVATE LINKER:--version-script=${exports})
set_target_properties(tracestep_attention PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                      LINK_DEPENDS ${exports} DEFINE_SYMBOL "" BUILD_RPATH ""
                      PUBLIC_HEADER ${CMAKE_SOURCE_DIR}/src/capi/tracestep_attention.h)
# A register that does not fit stops the build; tools/check_hopper_kernels also looks for
# products that the assembler serialised.
set(hopper_sources ${attention_sources})
list(FILTER hopper_sources INCLUDE REGEX "/hopper_[^/]*\\.cu$")
set_property(SOURCE ${hopper_sources} APPEND PROPERTY
             COMPILE_OPTIONS -Xptxas=--warn-on-spills,-Werror)
set_property(GLOBAL APPEND PROPERTY TRACESTEP_LIBRARIES tracestep_attention)

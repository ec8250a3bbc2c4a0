# libtracestep.so: training steps in the caller's process, behind the C interface of src/capi/tracestep.h. It holds
# the objects of the folders that it needs, whatever kind of library they are in this build, and shows nothing of
# them. Installed with its header, a package for find_package(tracestep) and a file for pkg-config.
set(library_folders base record ir ops planning analysis captured nn run passes codegen runtime
    backends_reference backends_cpu backends_comm_nccl exec spec session tokens weights train)
if(TARGET tracestep_backends_cuda)
  list(APPEND library_folders backends_cuda)
endif()
file(GLOB step_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/capi/step/*.cpp)
tracestep_define_where_asked(${step_sources})
# The objects alone are for programs that link the engine and have ops of their own (examples/).
add_library(tracestep_step OBJECT ${step_sources})
set_target_properties(tracestep_step PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(tracestep_step PRIVATE tracestep_options fmt::fmt Threads::Threads)
target_compile_options(tracestep_step PRIVATE ${tracestep_watched})
add_library(tracestep_shared SHARED $<TARGET_OBJECTS:tracestep_step>)
foreach(folder IN LISTS library_folders)
  target_sources(tracestep_shared PRIVATE $<TARGET_OBJECTS:tracestep_${folder}>)
endforeach()
set(exports ${CMAKE_SOURCE_DIR}/src/capi/tracestep.map)
target_link_libraries(tracestep_shared PRIVATE tracestep_options fmt::fmt nlohmann_json::nlohmann_json
                      hwy::hwy Threads::Threads ${CMAKE_DL_LIBS} ${TRACESTEP_SENTENCEPIECE})
foreach(use ZLIB::ZLIB tracestep_pcre2 tracestep_utf8proc)  # as archives, where there are some
  get_target_property(archive ${use} TRACESTEP_ARCHIVE)
  target_link_libraries(tracestep_shared PRIVATE $<IF:$<BOOL:${archive}>,${archive},${use}>)
endforeach()
if(TARGET tracestep_backends_cuda)
  # By its file: what is installed for others names no library but this one.
  target_link_libraries(tracestep_shared PRIVATE $<TARGET_FILE:tracestep_attention> CUDA::cudart_static)
  add_dependencies(tracestep_shared tracestep_attention)
endif()
target_link_options(tracestep_shared PRIVATE LINKER:--version-script=${exports}
                    LINKER:--exclude-libs,ALL LINKER:--disable-new-dtags)
target_include_directories(tracestep_shared INTERFACE
                           $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
set_target_properties(tracestep_shared PROPERTIES
                      OUTPUT_NAME tracestep EXPORT_NAME tracestep DEFINE_SYMBOL ""
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINK_DEPENDS ${exports}
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      BUILD_RPATH "$ORIGIN;$ORIGIN/lib" INSTALL_RPATH "$ORIGIN"
                      PUBLIC_HEADER ${CMAKE_SOURCE_DIR}/src/capi/tracestep.h)
configure_file(${CMAKE_SOURCE_DIR}/src/capi/tracestep.h
               ${CMAKE_BINARY_DIR}/include/tracestep/tracestep.h COPYONLY)
add_dependencies(program tracestep_shared)
if(TRACESTEP_SANITIZE OR TRACESTEP_FUZZ)
  return()
endif()

install(TARGETS tracestep_shared EXPORT tracestep LIBRARY DESTINATION lib COMPONENT library
        PUBLIC_HEADER DESTINATION include/tracestep COMPONENT library)
install(EXPORT tracestep NAMESPACE tracestep:: FILE tracestepConfig.cmake
        DESTINATION lib/cmake/tracestep COMPONENT library)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tracestepConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tracestep.pc @ONLY CONTENT
"prefix=\${pcfiledir}/../..
Name: tracestep
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -ltracestep
")
install(FILES ${CMAKE_BINARY_DIR}/tracestepConfigVersion.cmake
        DESTINATION lib/cmake/tracestep COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/tracestep.pc DESTINATION lib/pkgconfig COMPONENT library)
if(TARGET tracestep_attention)
  install(TARGETS tracestep_attention LIBRARY DESTINATION lib COMPONENT library
          PUBLIC_HEADER DESTINATION include/tracestep COMPONENT library)
endif()

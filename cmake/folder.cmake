# tracestep_folder(NAME [DEPS folder...] [USES target...] [USES_PRIVATE target...])
# makes the library tracestep_<name> of src/<NAME>/**.cpp (slashes become underscores). DEPS are
# folders, passed on to users; USES are library targets passed on, USES_PRIVATE ones are not.
# A folder of headers only becomes an INTERFACE library.
function(tracestep_folder folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS;USES;USES_PRIVATE")
  string(REPLACE "/" "_" target "tracestep_${folder}")
  set(directory ${CMAKE_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${directory}/*.cpp ${directory}/*.cu)
  list(REMOVE_ITEM sources ${directory}/main.cpp)
  list(TRANSFORM arg_DEPS REPLACE "/" "_")
  list(TRANSFORM arg_DEPS PREPEND tracestep_)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC tracestep_options ${arg_DEPS} ${arg_USES}
                          PRIVATE ${arg_USES_PRIVATE})
    tracestep_precompile(${target} ${tracestep_common_headers})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tracestep_options ${arg_DEPS} ${arg_USES}
                          ${arg_USES_PRIVATE})
  endif()
  set_property(GLOBAL APPEND PROPERTY TRACESTEP_LIBRARIES ${target})
endfunction()

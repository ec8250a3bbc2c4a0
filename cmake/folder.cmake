# Static libraries, except where a program that holds them all is large: beside CUDA kernels and under
# sanitizers. There every folder is a shared library in lib/, and the programs of a build share it.
# What belongs together finds each other by relative paths, wherever the build folder or a bundle of
# it lies; --no-undefined because a folder must name what it uses.
if(TRACESTEP_CUDA OR TRACESTEP_SANITIZE)
  set(BUILD_SHARED_LIBS ON)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
  set(CMAKE_BUILD_RPATH "$ORIGIN/lib;$ORIGIN/../lib")
  add_link_options(LINKER:--disable-new-dtags LINKER:--no-undefined)
endif()

# The files of a large folder are compiled in units of several, which read its headers once and make
# each template once: that halves the build. Names in anonymous namespaces of neighbouring files must
# then differ. OFF (the preset dev) compiles file by file: an edit is ready sooner.
option(TRACESTEP_UNITY "Join the files of src/lab, src/course, src/cli and src/spec" ON)

# tracestep_join(TARGET SOURCE...) makes units of up to eight neighbouring files of a directory.
function(tracestep_join target)
  set(last "")
  set(count 0)
  list(SORT ARGN)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source PARENT_PATH directory)
    if(NOT directory STREQUAL last OR count EQUAL 8)
      string(MD5 unit ${source})
      set(last ${directory})
      set(count 0)
    endif()
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${unit})
    math(EXPR count "${count} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# tracestep_may_use(FOLDER OUT): the folders that the rows of src/folders.txt name for FOLDER, or for
# those in it; none of these themselves.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/folders.txt)
function(tracestep_may_use folder out)
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/folders.txt rows REGEX "^${folder}(/[a-z/]+)?:")
  set(names "")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE " *#.*" "" row "${row}")  # a comment may hold a colon
    string(REGEX REPLACE "^[^:]*:" "" row "${row}")
    string(REGEX MATCHALL "[^ ]+" row "${row}")
    list(APPEND names ${row})
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(FILTER names EXCLUDE REGEX "^${folder}(/|$)")
  list(TRANSFORM names REPLACE "/\\*$" "")  # lab/*
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# tracestep_folder(NAME [EXCEPT folder] [DEPS folder...] [USES target...] [USES_PRIVATE target...])
# makes the library tracestep_<name> of src/<NAME>/**.cpp (slashes become underscores), without the
# folder in it that EXCEPT names. Passed on to users are the folders that NAME may use, or DEPS in
# their place, and USES, library targets; USES_PRIVATE are not. A folder of headers only becomes an
# INTERFACE library.
function(tracestep_folder folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCEPT" "DEPS;USES;USES_PRIVATE")
  string(REPLACE "/" "_" target "tracestep_${folder}")
  set(directory ${CMAKE_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${directory}/*.cpp ${directory}/*.cu)
  list(REMOVE_ITEM sources ${directory}/main.cpp)
  if(arg_EXCEPT)
    list(FILTER sources EXCLUDE REGEX "^${directory}/${arg_EXCEPT}/")
  endif()
  if(NOT arg_DEPS)
    tracestep_may_use(${folder} arg_DEPS)
  endif()
  list(TRANSFORM arg_DEPS REPLACE "/" "_")
  list(TRANSFORM arg_DEPS PREPEND tracestep_)
  if(sources)
    tracestep_define_where_asked(${sources})
    add_library(${target} ${sources})
    # A definition of its own would keep the compiler's cache from serving both kinds of library.
    set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
    target_link_libraries(${target} PUBLIC tracestep_options ${arg_DEPS} ${arg_USES}
                          PRIVATE ${arg_USES_PRIVATE})
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${tracestep_watched}>")
    tracestep_use_precompiled(${target} tracestep_library_headers)
    if(TRACESTEP_UNITY AND folder MATCHES "^(lab|course|cli|spec)$")
      tracestep_join(${target} ${sources})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tracestep_options ${arg_DEPS} ${arg_USES}
                          ${arg_USES_PRIVATE})
  endif()
  set_property(GLOBAL APPEND PROPERTY TRACESTEP_LIBRARIES ${target})
  set_property(GLOBAL APPEND PROPERTY TRACESTEP_USES ${arg_USES} ${arg_USES_PRIVATE})
endfunction()

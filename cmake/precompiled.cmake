# Headers of other projects that nearly every file reads, parsed once for all libraries and once for
# all tests: that halves a clean build, and one parsed set is about 100 MB. Our own headers stay out: each
# file includes what it uses, and a change recompiles its users. OFF compiles every file by its own
# includes alone. tools/check_headers.py knows the names that these headers define.
option(TRACESTEP_PCH "Precompile the headers of the standard library and of fmt" ON)
set(tracestep_common_headers algorithm array chrono cmath cstdint cstring filesystem functional
    map memory optional set source_location span string string_view utility variant vector
    fmt/format.h fmt/ranges.h)

# tracestep_precompile(SET FLAGS flag... USES target... HEADERS header...) makes the set. The compiler
# takes it only for files compiled with the same position independence: -fPIC, unless FLAGS say
# otherwise.
function(tracestep_precompile set)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FLAGS;USES;HEADERS")
  if(NOT TRACESTEP_PCH)
    return()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${set}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Its object is not used.\n")
  add_library(${set} OBJECT ${source})
  target_link_libraries(${set} PRIVATE tracestep_options fmt::fmt Threads::Threads ${arg_USES})
  target_compile_options(${set} PRIVATE ${arg_FLAGS})
  list(TRANSFORM arg_HEADERS PREPEND "<")
  list(TRANSFORM arg_HEADERS APPEND "$<ANGLE-R>")
  target_precompile_headers(${set} PRIVATE ${arg_HEADERS})
endfunction()

# The C++ files of TARGET read the headers of SET.
function(tracestep_use_precompiled target set)
  if(TRACESTEP_PCH)
    target_precompile_headers(${target} REUSE_FROM ${set})
  endif()
endfunction()

tracestep_precompile(tracestep_library_headers FLAGS ${tracestep_watched} HEADERS ${tracestep_common_headers})

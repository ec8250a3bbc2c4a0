# How every file is compiled. No -march=native: a binary must run on any x86-64 machine (SIMD is
# chosen at run time) and the compiler may not merge multiply and add on its own: -ffp-contract=off.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(TRACESTEP_FUZZ)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O3")  # without NDEBUG: the verifier and CHECKs stay on
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(TRACESTEP_CCACHE ccache)
if(TRACESTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Whatever the folder: build-cuda takes most host objects over from build, a clone from another.
  # The two kinds of sloppiness are what ccache asks for to serve files with precompiled headers.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${TRACESTEP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_link_options(-Wl,--as-needed)
find_program(TRACESTEP_LINKER NAMES mold ld.lld)
if(TRACESTEP_LINKER)
  cmake_path(GET TRACESTEP_LINKER FILENAME linker_name)
  string(REPLACE "ld.lld" "lld" linker_name ${linker_name})
  add_link_options(-fuse-ld=${linker_name})
endif()

# Paths in source locations and debug information are relative to the repository, whether the
# compiler is given absolute ones or, by ccache, those from the build folder.
cmake_path(RELATIVE_PATH CMAKE_SOURCE_DIR BASE_DIRECTORY ${CMAKE_BINARY_DIR} OUTPUT_VARIABLE up)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>"
                    "$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${up}/=>")

add_library(tracestep_options INTERFACE)
target_include_directories(tracestep_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(tracestep_options INTERFACE TRACESTEP_VERSION="${PROJECT_VERSION}"
                           TRACESTEP_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
# g++ 12 at -O3 sees overflows inside fmt, overlaps inside std::string and values of std::variant and
# std::optional without a start that are not there.
set(cxx_flags -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Wno-stringop-overflow
    -Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Most files take fewer bytes: collecting garbage on the way is a tenth of the compiler's time.
  list(APPEND cxx_flags --param=ggc-min-heapsize=500000)
endif()
if(TRACESTEP_WERROR)
  list(APPEND cxx_flags -Werror)
endif()
# The libraries are what the address sanitizer watches. Tests are compiled as in a release, so the compiler's cache has
# them; -Bsymbolic-functions keeps their copies of inline functions out of the libraries.
set(tracestep_watched "")  # of every folder of src/
set(tracestep_definitions "")
if(TRACESTEP_SANITIZE AND NOT TRACESTEP_SANITIZE MATCHES "^(address|thread)$")
  message(FATAL_ERROR "TRACESTEP_SANITIZE is \"${TRACESTEP_SANITIZE}\"; address, thread or OFF")
endif()
if(TRACESTEP_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
  set(tracestep_watched -O1 -g1 -fno-omit-frame-pointer ${sanitizers})
  target_link_options(tracestep_options INTERFACE ${sanitizers} LINKER:-Bsymbolic-functions)
  list(APPEND tracestep_definitions TRACESTEP_ASAN)
endif()
# ThreadSanitizer has to see every access, those of the tests and of what they inline among them.
if(TRACESTEP_SANITIZE STREQUAL "thread")
  list(APPEND cxx_flags -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread)
  target_link_options(tracestep_options INTERFACE -fsanitize=thread)
endif()
if(TRACESTEP_FUZZ)  # warnings are the other compiler's business
  set(cxx_flags -w -ffp-contract=off -fsanitize=fuzzer-no-link,address,undefined
      -fno-sanitize-recover=all -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(tracestep_options INTERFACE -fsanitize=address,undefined
                                                  -fprofile-instr-generate)
endif()
target_compile_options(tracestep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>")

# tracestep_define_where_asked(SOURCE...) gives each of `tracestep_definitions`, what this build has
# and others lack, to those of the sources in which its name stands. The others are compiled alike in
# all builds, so the compiler's cache has them.
function(tracestep_define_where_asked)
  foreach(source IN LISTS ARGN)
    foreach(definition IN LISTS tracestep_definitions)
      file(STRINGS ${source} questions REGEX "${definition}" LIMIT_COUNT 1)
      if(questions)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS ${definition})
      endif()
    endforeach()
  endforeach()
endfunction()

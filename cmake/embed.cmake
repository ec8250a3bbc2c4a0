# tracestep_embed(TARGET NAME FOLDER PATTERN...) puts the text files of src/FOLDER into a library. Its
# sources include "embedded/NAME.h", where page.css is tracestep::NAME::kPageCss, and files() has all
# of them by name. Headers and sources are written when CMake runs, which a change of one of the files,
# or a new one, starts again.
function(tracestep_embed target name folder)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/src/${folder}/ OUTPUT_VARIABLE patterns)
  file(GLOB paths CONFIGURE_DEPENDS ${patterns})
  set(declarations "")
  set(definitions "")
  set(rows "")
  foreach(path IN LISTS paths)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    cmake_path(GET path FILENAME file)
    cmake_path(GET path STEM stem)
    string(REGEX MATCHALL "[A-Za-z0-9]+" words ${file})
    set(constant k)
    foreach(word IN LISTS words)
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND constant "${first}${rest}")
    endforeach()
    file(READ ${path} text)
    string(APPEND declarations "extern const std::string_view ${constant};\n")
    string(APPEND definitions "const std::string_view ${constant} = R\"embedded(${text})embedded\";\n")
    string(APPEND rows "    {\"${stem}\", ${constant}},\n")
  endforeach()
  tracestep_write_embedded(${name}.h
"// Written by cmake/embed.cmake: the files of src/${folder}.
#pragma once

#include <span>
#include <string_view>

namespace tracestep::${name} {

struct File {
  std::string_view name, text;  // the name without its extension
};
std::span<const File> files();  // in the order of their names

${declarations}
}  // namespace tracestep::${name}
")
  tracestep_write_embedded(${name}.cpp
"// Written by cmake/embed.cmake.
#include \"embedded/${name}.h\"

namespace tracestep::${name} {

${definitions}
std::span<const File> files() {
  static const File all[] = {
${rows}  };
  return all;
}

}  // namespace tracestep::${name}
")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/embedded/${name}.cpp)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()

# Writes a file of build/embedded, unless it is there already with this text.
function(tracestep_write_embedded file text)
  set(path ${CMAKE_BINARY_DIR}/embedded/${file})
  set(known "")
  if(EXISTS ${path})
    file(READ ${path} known)
  endif()
  if(NOT text STREQUAL known)
    file(WRITE ${path} "${text}")
  endif()
endfunction()

# tracestep_list(TARGET NAME FOLDER PREFIX) writes "embedded/NAME.inc" with a line EACH(STEM) for every
# file src/FOLDER/PREFIX_STEM.cpp, so that what such a file defines is found without a list to edit.
function(tracestep_list target name folder prefix)
  file(GLOB paths CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/${prefix}_*.cpp)
  set(rows "")
  foreach(path IN LISTS paths)
    cmake_path(GET path STEM stem)
    string(REPLACE "${prefix}_" "" stem ${stem})
    string(APPEND rows "EACH(${stem})\n")
  endforeach()
  tracestep_write_embedded(${name}.inc "${rows}")
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()

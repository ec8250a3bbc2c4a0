# Run when a package is installed (cmake/package.cmake): copies the shared libraries of `program` to
# `libraries`, and the licences of them and of `packages_inside` to `licenses`.

# Left out are those that every system with Python has, as wheels may expect (manylinux).
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} RESOLVED_DEPENDENCIES_VAR carried
     PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so" "^ld-linux"
                         "^libtracestep_")
# A wheel holds no links: each library travels under the one name that programs ask for.
file(MAKE_DIRECTORY $ENV{DESTDIR}${libraries} $ENV{DESTDIR}${licenses})
foreach(file IN LISTS carried)
  cmake_path(GET file FILENAME name)
  message(STATUS "Installing: $ENV{DESTDIR}${libraries}/${name}")
  file(REAL_PATH ${file} file)
  file(COPY_FILE ${file} $ENV{DESTDIR}${libraries}/${name})
  execute_process(COMMAND dpkg-query -S ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
  string(REGEX REPLACE ":.*" "" owner "${owner}")
  if(NOT owner)
    message(WARNING "no Debian package owns ${file}: its licence is not in the package")
  endif()
  list(APPEND packages_inside ${owner})
endforeach()

# Debian's texts name the long licences by their place on every Debian system.
function(carry_text source name)
  file(REAL_PATH ${source} source)
  cmake_path(SET to $ENV{DESTDIR}${licenses}/${name}.txt)
  cmake_path(GET to PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  file(COPY_FILE ${source} ${to})
endfunction()
foreach(package IN LISTS packages_inside)
  set(text /usr/share/doc/${package}/copyright)
  if(NOT EXISTS ${text})
    message(WARNING "${text} is not there: a licence is missing in the package")
    continue()
  endif()
  carry_text(${text} ${package})
  file(STRINGS ${text} lines REGEX "/usr/share/common-licenses/")
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]" named "${lines}")
  foreach(text IN LISTS named)
    cmake_path(GET text FILENAME name)
    carry_text(${text} common-licenses/${name})
  endforeach()
endforeach()

# The commit that is built, in OUTPUT, which is only written when it changes. Included, it adds the
# target that does so at every build; as a script (cmake -P) it is what that target runs.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(commit_source ${CMAKE_BINARY_DIR}/embedded/commit.cpp)
  add_custom_target(tracestep_commit
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${commit_source}
            -P ${CMAKE_CURRENT_LIST_FILE}
    BYPRODUCTS ${commit_source}
    COMMENT "")
  target_sources(tracestep_lab PRIVATE ${commit_source})
  add_dependencies(tracestep_lab tracestep_commit)
  return()
endif()

# A checkout of its own, not one that this folder happens to lie in.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-prefix
                OUTPUT_VARIABLE prefix RESULT_VARIABLE status ERROR_QUIET)
string(STRIP "${prefix}" prefix)
set(commit "")
if(status EQUAL 0 AND prefix STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 "--exclude=*"
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
else()
  # git archive replaces the placeholder in this file (.gitattributes).
  file(STRINGS ${SOURCE}/cmake/archived_commit.txt commit LIMIT_COUNT 1)
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit "")
endif()
set(code "// Written by cmake/commit.cmake.\n#include \"lab/measure/commit.h\"\n\n")
string(APPEND code "const char* const tracestep::kCommit = \"${commit}\";\n")
set(known "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} known)
endif()
if(NOT code STREQUAL known)
  file(WRITE ${OUTPUT} "${code}")
endif()

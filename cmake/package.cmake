# What is installed: the program, its manual page and completions of three shells, by `cmake --install` under
# a prefix. The component `wheel` is the same for machines that lack its libraries: with those that are shared,
# which the program finds from its own place, and the licences of all that is inside. Its folders are those of
# scikit-build-core (pyproject.toml), which makes a wheel of them: those for scripts and data become the
# bin/ and the root of the environment that it is installed into.
if(NOT TARGET tracestep)
  return()
endif()

# tracestep_install(PROGRAM BIN ROOT [option of install()...]) installs a program and the texts that it writes;
# these are made then, not whenever it is linked.
function(tracestep_install program bin root)
  set(texts ${CMAKE_BINARY_DIR}/texts_of_${program})
  install(CODE "
    file(MAKE_DIRECTORY \"${texts}\")
    execute_process(COMMAND \"$<TARGET_FILE:${program}>\" show --docs man
                    OUTPUT_FILE \"${texts}/tracestep.1\" COMMAND_ERROR_IS_FATAL ANY)
    foreach(shell bash zsh fish)
      execute_process(COMMAND \"$<TARGET_FILE:${program}>\" completions \${shell}
                      OUTPUT_FILE \"${texts}/completions.\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" ${ARGN})
  install(TARGETS ${program} RUNTIME DESTINATION ${bin} ${ARGN})
  install(FILES ${texts}/tracestep.1 DESTINATION ${root}/share/man/man1 ${ARGN})
  install(FILES ${texts}/completions.bash RENAME tracestep
          DESTINATION ${root}/share/bash-completion/completions ${ARGN})
  install(FILES ${texts}/completions.zsh RENAME _tracestep
          DESTINATION ${root}/share/zsh/site-functions ${ARGN})
  install(FILES ${texts}/completions.fish RENAME tracestep.fish
          DESTINATION ${root}/share/fish/vendor_completions.d ${ARGN})
endfunction()
tracestep_install(tracestep bin .)
if(TRACESTEP_SANITIZE OR TRACESTEP_FUZZ)
  return()
endif()

# The target `packaged` links the objects of `program` once more, without MPI, since a program linked to one
# MPI does not run beside another, and with static archives where there are some.
add_executable(packaged EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tracestep>)
list(REMOVE_ITEM libraries tracestep_backends_comm_mpi)
foreach(library IN LISTS libraries)
  get_target_property(type ${library} TYPE)
  if(type MATCHES "STATIC_LIBRARY|SHARED_LIBRARY" AND NOT library STREQUAL "tracestep_attention")
    target_sources(packaged PRIVATE
                   "$<FILTER:$<TARGET_OBJECTS:${library}>,EXCLUDE,/cli/mpi\\.cpp\\.o$>")
  endif()
endforeach()
target_sources(packaged PRIVATE src/cli/mpi.cpp)
target_compile_options(packaged PRIVATE -UTRACESTEP_WITH_MPI)  # that file alone asks for it
get_property(uses GLOBAL PROPERTY TRACESTEP_USES)
list(REMOVE_DUPLICATES uses)
list(REMOVE_ITEM uses PkgConfig::TRACESTEP_OPENMPI)
foreach(use IN LISTS uses)
  set(archive "")
  if(TARGET ${use})
    get_target_property(archive ${use} TRACESTEP_ARCHIVE)
  endif()
  if(archive)
    target_link_libraries(packaged PRIVATE ${archive})
  else()
    target_link_libraries(packaged PRIVATE ${use})
  endif()
endforeach()
# The older kind of path, DT_RPATH, also serves the libraries of the libraries.
target_link_libraries(packaged PRIVATE tracestep_options)
target_link_options(packaged PRIVATE LINKER:--disable-new-dtags)
set_target_properties(packaged PROPERTIES OUTPUT_NAME tracestep
                      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/packaged
                      INSTALL_RPATH "$ORIGIN/../lib/tracestep")

set(package_programs scripts)
set(package_root data)
set(package_licenses metadata/licenses)
set(package_modules platlib)
if(SKBUILD)
  set(package_programs ${SKBUILD_SCRIPTS_DIR})
  set(package_root ${SKBUILD_DATA_DIR})
  set(package_licenses ${SKBUILD_METADATA_DIR}/licenses)
  set(package_modules ${SKBUILD_PLATLIB_DIR})
endif()
set(in_wheel COMPONENT wheel EXCLUDE_FROM_ALL)
tracestep_install(packaged ${package_programs} ${package_root} ${in_wheel})
find_package(Python3 QUIET COMPONENTS Interpreter)
set(stub ${CMAKE_BINARY_DIR}/texts_of_packaged/__init__.pyi)
install(CODE "  # the types of the Python module, of the options that this program has
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${CMAKE_SOURCE_DIR}/python
                          ${Python3_EXECUTABLE} -B -m tracestep._stub \"$<TARGET_FILE:packaged>\"
                  OUTPUT_FILE \"${stub}\" COMMAND_ERROR_IS_FATAL ANY)" ${in_wheel})
install(FILES ${stub} DESTINATION ${package_modules}/tracestep ${in_wheel})

# The library of tracestep.step, under the one name that Python asks for.
install(FILES $<TARGET_FILE:tracestep_shared> RENAME libtracestep.so
        DESTINATION ${package_root}/lib/tracestep ${in_wheel})
add_dependencies(packaged tracestep_shared)

# What is compiled or linked into the program, by Debian's names.
set(packages_inside nlohmann-json3-dev libutfcpp-dev libxxhash-dev libsodium-dev
    zlib1g-dev libpcre2-dev libutf8proc-dev)
if(TARGET tracestep_attention)
  install(FILES $<TARGET_FILE:tracestep_attention>
          DESTINATION ${package_root}/lib/tracestep ${in_wheel})
  # Of the static runtime: NVIDIA's own packages have it in one place, those of pip in another.
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH toolkit)
  file(GLOB cuda_terms ${toolkit}/EULA.txt
       ${toolkit}/dist-info/nvidia_cuda_runtime-*/licenses/License.txt)
  if(cuda_terms)
    list(GET cuda_terms 0 cuda_terms)
    install(FILES ${cuda_terms} RENAME cuda-runtime.txt DESTINATION ${package_licenses} ${in_wheel})
  else()
    message(WARNING "no terms of CUDA's runtime in ${toolkit}: they are missing in a package")
  endif()
endif()
install(CODE "
  set(program \"$<TARGET_FILE:packaged>\")
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE prefix)
  cmake_path(APPEND prefix \"${package_root}/lib/tracestep\" OUTPUT_VARIABLE libraries)
  cmake_path(APPEND prefix \"${package_licenses}\" OUTPUT_VARIABLE licenses)
  set(packages_inside \"${packages_inside}\")" ${in_wheel})
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/carried.cmake ${in_wheel})

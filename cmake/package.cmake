# What is installed: the program, its manual page and completions of three shells. With
# TRACESTEP_PACKAGE, also what another machine may lack: shared libraries, which the program finds from
# its own place, and the licences of all that is inside. `cmake --install` puts this under a prefix;
# scikit-build-core (pyproject.toml) puts it into a wheel, whose folders for scripts and data become
# the bin/ and the root of the environment that it is installed into.
if(NOT TARGET tracestep)
  return()
endif()
set(package_programs bin)
set(package_root .)
set(package_licenses share/doc/tracestep/licenses)
if(SKBUILD)
  set(package_programs ${SKBUILD_SCRIPTS_DIR})
  set(package_root ${SKBUILD_DATA_DIR})
  set(package_licenses ${SKBUILD_METADATA_DIR}/licenses)
endif()

# The program writes these; they are made when it is installed, not whenever it is linked.
set(texts ${CMAKE_BINARY_DIR}/package)
install(CODE "
  file(MAKE_DIRECTORY \"${texts}\")
  execute_process(COMMAND \"${CMAKE_BINARY_DIR}/tracestep\" show --docs man
                  OUTPUT_FILE \"${texts}/tracestep.1\" COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND \"${CMAKE_BINARY_DIR}/tracestep\" completions \${shell}
                    OUTPUT_FILE \"${texts}/completions.\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(TARGETS tracestep RUNTIME DESTINATION ${package_programs})
install(FILES ${texts}/tracestep.1 DESTINATION ${package_root}/share/man/man1)
install(FILES ${texts}/completions.bash RENAME tracestep
        DESTINATION ${package_root}/share/bash-completion/completions)
install(FILES ${texts}/completions.zsh RENAME _tracestep
        DESTINATION ${package_root}/share/zsh/site-functions)
install(FILES ${texts}/completions.fish RENAME tracestep.fish
        DESTINATION ${package_root}/share/fish/vendor_completions.d)
if(SKBUILD)  # the types of the Python module, of the options that this program has
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  install(CODE "
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${CMAKE_SOURCE_DIR}/python
                            ${Python3_EXECUTABLE} -B -m tracestep._stub \"${CMAKE_BINARY_DIR}/tracestep\"
                    OUTPUT_FILE \"${texts}/__init__.pyi\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${texts}/__init__.pyi DESTINATION ${SKBUILD_PLATLIB_DIR}/tracestep)
endif()
if(NOT TRACESTEP_PACKAGE)
  return()
endif()

# The older kind of path, DT_RPATH, also serves the libraries of the libraries.
target_link_options(tracestep PRIVATE LINKER:--disable-new-dtags)
set_target_properties(tracestep PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/tracestep")
# What is compiled or linked into the program, by Debian's names.
set(packages_inside nlohmann-json3-dev libutfcpp-dev libxxhash-dev libsodium-dev
    zlib1g-dev libpcre2-dev libutf8proc-dev)
if(TARGET tracestep_attention)
  install(TARGETS tracestep_attention LIBRARY DESTINATION ${package_root}/lib/tracestep)
  # Of the static runtime: NVIDIA's own packages have it in one place, those of pip in another.
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH toolkit)
  file(GLOB cuda_terms ${toolkit}/EULA.txt
       ${toolkit}/dist-info/nvidia_cuda_runtime-*/licenses/License.txt)
  if(cuda_terms)
    list(GET cuda_terms 0 cuda_terms)
    install(FILES ${cuda_terms} RENAME cuda-runtime.txt DESTINATION ${package_licenses})
  else()
    message(WARNING "no terms of CUDA's runtime in ${toolkit}: they are missing in the package")
  endif()
endif()
install(CODE "
  set(program \"${CMAKE_BINARY_DIR}/tracestep\")
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE prefix)
  cmake_path(APPEND prefix \"${package_root}/lib/tracestep\" OUTPUT_VARIABLE libraries)
  cmake_path(APPEND prefix \"${package_licenses}\" OUTPUT_VARIABLE licenses)
  set(packages_inside \"${packages_inside}\")")
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/carried.cmake)

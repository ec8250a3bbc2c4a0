# scikit-build-core configures this for tools/wheel: the target `packaged` and the files of the wheel are those
# of the build folder TRACESTEP_BUILT, whose objects are thus not compiled again.
add_custom_target(packaged COMMAND ${CMAKE_COMMAND} --build ${TRACESTEP_BUILT} --target packaged)
cmake_path(GET SKBUILD_PLATLIB_DIR PARENT_PATH folders)
install(CODE "
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${TRACESTEP_BUILT} --component wheel
                          --prefix ${folders}
                  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT wheel)

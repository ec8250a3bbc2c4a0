// Opens shared libraries at run time, so that a missing one gives our own message and not an error
// of the loader. Callers look up the functions themselves.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tracestep {

// Opens the first library `name` that is found, and returns its dlopen handle; nullptr: there is
// none. It is looked for where the loader looks (LD_LIBRARY_PATH, the system), in NVIDIA's packages
// of the Python environment in which this program is installed, and in `folders`. Symbols stay
// local; an open library is never closed.
void* open_shared_library(const std::string& name,
                          std::span<const std::filesystem::path> folders = {});

// Returns the folders PREFIX/lib/python*/{site,dist}-packages/nvidia/*/lib, sorted, where pip puts
// libraries for a program PREFIX/bin/NAME. Empty if there are none.
std::vector<std::filesystem::path> python_library_folders(const std::filesystem::path& prefix);

// Returns the library folders of a CUDA toolkit of version `major`, including that of CUPTI.
std::vector<std::filesystem::path> toolkit_library_folders(int major);

}  // namespace tracestep

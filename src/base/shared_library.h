// Shared libraries that are looked for at run time, so that their absence is a message and not the
// loader's error. What is called in them is their users' business.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tracestep {

// The handle of dlopen for the first library `name` there is, or nullptr: where the loader looks
// (LD_LIBRARY_PATH, the system), in NVIDIA's packages of the Python environment that this program
// is installed into, and in `folders`. Symbols stay local; a found library stays open.
void* open_shared_library(const std::string& name,
                          std::span<const std::filesystem::path> folders = {});

// PREFIX/lib/python*/{site,dist}-packages/nvidia/*/lib, sorted: where pip puts libraries for a
// program PREFIX/bin/NAME. Empty where there are none.
std::vector<std::filesystem::path> python_library_folders(const std::filesystem::path& prefix);

// The folders of a CUDA toolkit's libraries, `major` its version, CUPTI's among them.
std::vector<std::filesystem::path> toolkit_library_folders(int major);

}  // namespace tracestep

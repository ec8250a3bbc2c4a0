// Where a test finds the program and stored files: in a build folder, or in an unpacked bundle of
// tools/gpu_bundle, which may lie anywhere.
#pragma once

#include <filesystem>

namespace tracestep::testing {

// The repository; in a bundle the root, which holds copies of the files that tests read.
std::filesystem::path source_folder();

// The program tracestep of the same build.
std::filesystem::path program_path();

}  // namespace tracestep::testing

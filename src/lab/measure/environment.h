// The machine and the build that a result comes from, recorded as its `environment`. Leaves out
// whatever would identify a person: host name, user name, and the folders of paths.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

// Describes this machine and build. `command_line`: the arguments as given. `threads`: of the CPU
// back end; 0: OMP_NUM_THREADS if set, else all allowed cores. Unknown facts are null.
Json capture_environment(std::span<const std::string> command_line = {}, int threads = 0);

// Removes the folders of an argument's path: "--tokens=/data/x.bin" gives "--tokens=x.bin".
std::string without_folders(const std::string& argument);

}  // namespace tracestep

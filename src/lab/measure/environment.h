// The machine and the build a number comes from, as the `environment` of every result. Leaves out
// whatever would identify a person: no host name, no user name, and file names without folders.
#pragma once

#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

// The cores this process may run on (its affinity mask), at least 1.
int allowed_cores();

// `command_line`: the arguments as given. `threads`: those the CPU back end uses; 0 stands for what
// OMP_NUM_THREADS says, else all allowed cores. Facts that cannot be found out are null.
Json capture_environment(std::span<const std::string> command_line = {}, int threads = 0);

// An argument with the folders of its path removed: "--tokens=/data/x.bin" gives "--tokens=x.bin".
std::string without_folders(const std::string& argument);

}  // namespace tracestep

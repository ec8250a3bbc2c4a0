// The cores this process may run on (its affinity mask), as they were when this was first asked.
#pragma once

#include <vector>

namespace tracestep {

// The numbers of these cores; empty if the kernel does not report them.
const std::vector<int>& allowed_core_numbers();

// The number of these cores, at least 1; if the kernel does not report them, that of all cores of
// the machine.
int allowed_cores();

}  // namespace tracestep

// The cores this process may run on (its affinity mask), as they were when this was first asked.
#pragma once

#include <vector>

namespace tracestep {

// Their numbers; empty where the kernel does not say.
const std::vector<int>& allowed_core_numbers();

// How many there are; all of the machine's where the kernel does not say. At least 1.
int allowed_cores();

}  // namespace tracestep

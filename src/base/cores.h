// The cores this process may run on (its affinity mask), as they were when this was first asked.
#pragma once

#include <vector>

namespace tracestep {

// Returns the numbers of the cores that this process may run on; empty: the kernel reports none.
const std::vector<int>& allowed_core_numbers();

// Returns how many cores this process may run on, at least 1; if the kernel does not report it, how
// many the machine has.
int allowed_cores();

}  // namespace tracestep

// The cores this process may run on. The CPU back end binds a thread to one of them
// (backends/cpu/threads.h); threads and processes that this one starts later inherit that.
#pragma once

#include <vector>

namespace tracestep {

// The numbers of the cores when this was called first, which is before any thread is bound; empty
// where the kernel does not say.
const std::vector<int>& cores_at_start();

// Binds the calling thread to one core. A refusal costs speed only.
void bind_to_core(int core);
// Lets the calling thread run on all cores again. After fork() it may be called where
// cores_at_start() was called before.
void leave_core();

}  // namespace tracestep

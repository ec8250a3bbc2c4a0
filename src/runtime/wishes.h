// Shares signals among the ranks of a run: a signal that any of their processes receives applies to
// all.
#pragma once

#include "base/signals.h"
#include "runtime/communicator.h"

namespace tracestep {

struct Wishes {
  bool stop = false, save = false;
};

// Returns what signals have asked of any process of the group; every process must call this. A
// signal that ends another process then counts as this process's own, so that all have the same
// exit status. `stop`: nullptr in all processes or in none.
Wishes wishes_of(Communicator* group, const StopSignal* stop);

}  // namespace tracestep

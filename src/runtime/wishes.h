// Shares what signals ask of a run of several ranks: a signal that any of their processes receives
// holds for all.
#pragma once

#include "base/signals.h"
#include "runtime/communicator.h"

namespace tracestep {

struct Wishes {
  bool stop = false, save = false;
};

// Wishes that any process of the group has received; every process must call this. A signal that
// ends another process is from then on this one's as well, so that all have its exit status.
// `stop`: nullptr in all processes or in none.
Wishes wishes_of(Communicator* group, const StopSignal* stop);

}  // namespace tracestep

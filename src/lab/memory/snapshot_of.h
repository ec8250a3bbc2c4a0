// A recorded step as a memory snapshot for PyTorch's viewers.
#pragma once

#include "lab/memory/run.h"
#include "lab/memory/snapshot.h"

namespace tracestep {

// Every block with its model path, op, source line and phase as the frames of a call stack. Weights
// and states are allocated within the recording, so that the viewer colours them by category.
// `max_entries` keeps the newest events; 0: all. `device`: the index in the viewer's menu.
MemorySnapshot snapshot_of(const MemoryRun& run, std::size_t max_entries = 0, int device = 0);

}  // namespace tracestep

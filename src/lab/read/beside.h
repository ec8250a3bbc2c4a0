// A recording beside our own program of the same model: what the program takes is predicted, as
// nothing of it runs.
#pragma once

#include <set>
#include <vector>

#include "lab/memory/run.h"
#include "lab/predict/predict.h"
#include "lab/read/snapshot_file.h"
#include "lab/read/trace_tables.h"

namespace tracestep {

struct OurStep {
  RunSpec run;
  Prediction time = {};  // of a trace's own; none beside a snapshot
  MemoryRun memory;
  // The peak of the same step with attention that keeps its scores, and with attention in tiles.
  std::int64_t naive_peak_bytes = 0, flash_peak_bytes = 0;
  std::set<std::int64_t> flash_sizes = {};  // of the tensors that the second has
};

// The bytes of the step, in each form of attention.
OurStep our_step(const RunSpec& run, const DeviceTraits& traits);

// "beside": the step, its kinds of work, passes and modules, theirs and ours in ms and in kernels a
// step; "beside_step", one row: what was predicted, and how both compute attention. Modules are
// told by words in their names, and those that both have are shown.
std::vector<Table> beside_tables(const ReadTrace& theirs, const OurStep& ours);

// "beside_memory": the peak, the categories that the file names, and the tensors of batch, heads
// and the context squared that live at the peak, theirs and ours, told by their size; none where
// other tensors of the step have it, too.
Table beside_table(const SnapshotFacts& theirs, const OurStep& ours);

}  // namespace tracestep

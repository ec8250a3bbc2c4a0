// Compares a recording with our own program of the same model, whose time and bytes are predicted,
// because it does not run.
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
  Prediction time = {};  // The predicted time, to compare with a trace; empty for a snapshot.
  MemoryRun memory;
  // The peak of the step with naive attention, which keeps its scores, and with flash attention.
  std::int64_t naive_peak_bytes = 0, flash_peak_bytes = 0;
  // The sizes of the tensors of the step with flash attention.
  std::set<std::int64_t> flash_sizes = {};
};

// Predicts the bytes of the step with each form of attention.
OurStep our_step(const RunSpec& run, const DeviceTraits& traits);

// The table "beside", with the step, its kinds of work, passes and modules, theirs and ours, in ms
// and in kernels per step; and "beside_step" of one row, with the prediction and how both compute
// attention. Modules are matched by words in their names; only those that both have are shown.
std::vector<Table> beside_tables(const ReadTrace& theirs, const OurStep& ours);

// The table "beside_memory": the peak, the categories that the file names, and the tensors of
// B·H·T² elements that are alive at the peak, theirs and ours. These tensors are recognised by
// their size, and are left out if other tensors of the step have the same.
Table beside_table(const SnapshotFacts& theirs, const OurStep& ours);

}  // namespace tracestep

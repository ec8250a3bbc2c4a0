// What to do when a step does not fit: what holds the memory at the failing request, and which
// changes of batch, context, precision, granularity, attention, recomputation, the time of updates
// or the dtype or place of AdamW's states make it fit, with the cost of each.
#pragma once

#include <optional>

#include "lab/memory/tables.h"
#include "lab/predict/predict.h"

namespace tracestep {

// Says whether the step ran out of memory, or was predicted to need more than its limit.
bool runs_out(const MemoryCell& cell);

// The failing request: phase, node, bytes requested, bytes live, bytes missing.
Table failure_table(const MemoryCell& cell);
// The ten largest holders at that moment, layers added up, and the rest; the rows add up to what
// was live.
Table failure_holder_table(const MemoryCell& cell);

// One way to make it fit.
struct Remedy {
  RunSpec step = {};
  std::string what = {};     // "batch 4 → 2"
  std::string command = {};  // flags that differ: "--batch 2"
  std::int64_t peak_bytes = 0;
  std::int64_t host_bytes = 0;  // in the host's memory
  // Per token, relative to the original step: 1.0 is unchanged.
  double flops_ratio = 1.0, moved_ratio = 1.0, kernels_ratio = 1.0;
};

// The smallest change first: those that keep the numbers and the task come before the others
// (fused, early updates, flash, recomputation, offload, batch, AdamW's states, precision, context).
// Several changes are combined only when no single one fits. Empty when nothing fits.
std::vector<Remedy> remedies(const MemoryCell& cell, std::int64_t limit_bytes);
// `times`: what predicts the time of each; nullptr: no time is shown.
Table remedy_table(const MemoryCell& cell, std::int64_t limit_bytes,
                   const Predictor* times = nullptr);

}  // namespace tracestep

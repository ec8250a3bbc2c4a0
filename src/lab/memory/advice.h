// What to do when a step does not fit: who holds the memory at the failing request, and which
// changes of batch, context, precision, granularity or attention fit, with what each costs.
#pragma once

#include <optional>

#include "lab/memory/tables.h"

namespace tracestep {

// The failing request: phase, node, what it asked for, what was live, what is missing.
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
  // Of one token, against the step as it was: 1.0 is the same.
  double flops_ratio = 1.0, moved_ratio = 1.0, kernels_ratio = 1.0;
};

// The smallest first: a change that keeps numbers and task before one that does not (fused, flash,
// batch, precision, context), several at once only when none does alone. Empty: nothing fits.
std::vector<Remedy> remedies(const MemoryCell& cell, std::int64_t limit_bytes);
Table remedy_table(const MemoryCell& cell, std::int64_t limit_bytes);

}  // namespace tracestep

// When collectives run: in batches, beside the other nodes.
#pragma once

#include "ir/program.h"
#include "run/parallel.h"

namespace tracestep {

// Only orders nodes and sets the attributes `lane` and `batch` of collectives:
// - Results that nothing but the optimizer, other collectives and outputs wait for (sums of
//   gradients, gathered updates) are made together when `choice.bucket_bytes` of them are there.
//   What reads them stands behind the next batch, so that it does not wait for one just begun.
//   With Overlap::kUpdates all but the first batch wait for the end of backward.
//   Behind backward the last ones do not wait for more: they run beside the first updates.
// - Weights are gathered layer by layer, `choice.prefetch` layers before they are read.
// - Other collectives stay where they are.
// With `choice.overlap` off they run in the same batches on lane 0, and nothing is gathered ahead.
// `program` is materialized.
Program overlap(const Program& program, const Parallel& choice);

}  // namespace tracestep

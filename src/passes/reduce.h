// Gradients of one rank's share of the batch become those of the whole batch.
#pragma once

#include "ir/program.h"
#include "passes/parallel.h"

namespace tracestep {

// Sums the outputs "grad.NAME" over all ranks, and "loss": each rank's loss must be its share of
// the whole one. Gradients become ready in the order of the nodes; those of one dtype are summed as
// soon as `choice.bucket_bytes` of them are there, in one copy side by side, a single one in place.
// Under `shard`, outputs are the rank's part ([part_count]): from 2 on each is made where the
// gradient is, before that behind all of backward. Sums that autograd made already count as
// communication too. Gradients in states (persistent ones) stay those of the rank.
Program reduce(const Program& program, const Parallel& choice);

}  // namespace tracestep

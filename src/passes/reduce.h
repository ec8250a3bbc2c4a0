// Gradients of one rank's share of the batch become those of the whole batch.
#pragma once

#include "ir/program.h"
#include "passes/parallel.h"

namespace tracestep {

// Sums the outputs "grad.NAME" over all replicas, and "loss": each one's loss must be its share of
// the whole one. Gradients become ready in the order of the nodes; those of one dtype are summed as
// soon as `choice.bucket_bytes` of them are there, in one copy side by side, a single one in place.
// Under `shard`, outputs are the rank's part ([part_count]): with shard=1 they are made after all
// of backward, with shard=2 each where its gradient is. The sums that autograd has made (shard=3)
// count as communication too. Gradients in states (persistent ones) stay those of the rank.
Program reduce(const Program& program, const Parallel& choice);

}  // namespace tracestep

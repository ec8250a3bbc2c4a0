// Gradients of one rank's share of the batch become those of the whole batch.
#pragma once

#include "ir/program.h"
#include "run/parallel.h"

namespace tracestep {

// Sums the outputs "grad.NAME" over all replicas, each where it is made, and "loss": each one's
// loss must be its share of the whole one. Under `shard`, outputs are the rank's part
// ([part_count]); with shard=1 they are made after all of backward. The sums that autograd has made
// (shard=3) count as communication too. Gradients in states (persistent ones) stay those of the
// rank. Which sums are issued together, and when, is left to `overlap`.
Program reduce(const Program& program, const Parallel& choice);

}  // namespace tracestep

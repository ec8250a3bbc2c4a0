// Micro-batches of several replicas as consecutive shards of one sum.
#pragma once

#include "ir/program.h"
#include "ops/rank_group.h"

namespace tracestep {

// For a program that puts its gradients into states, or adds them: the states become those of the
// whole group after every run. They are added up in one chain, x0 + x1 + x2 + …, in the order of
// the ranks and then of the runs, whatever the number of ranks: the first rank adds its gradient to
// the state, the others to nothing, and an all_reduce adds up these in the order of the ranks.
Program sum_shards(const Program& program, const RankGroup& group);

}  // namespace tracestep

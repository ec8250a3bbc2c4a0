// Weights in parts: every rank keeps its own, and gathers the whole where it is read.
#pragma once

#include "ir/program.h"
#include "ops/rank_group.h"

namespace tracestep {

// Makes every parameter a leaf of its part alone ([part_count], in no block), and an all_gather of
// it directly before its first reader. Autograd makes the reduce_scatter that belongs to it.
Program shard(const Program& program, const RankGroup& group);

}  // namespace tracestep

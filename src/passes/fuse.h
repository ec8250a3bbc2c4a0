// Fusion: regions of elementwise ops, pairs, rows and the views between them as one node each.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Joins neighbours in the dataflow, and nodes that read the same operand, while the region can be
// computed in one walk (analysis/fused_body.h) and nothing outside stands between its nodes. Only
// nodes of one phase and epoch are joined, and what is read outside stays a result, so what is
// saved for backward does not change. A region writes its result in the order that the reader wants
// where a copy would be needed otherwise. Casts of weights, gradients and the optimizer are left
// alone: their results take the storage of a leaf, which a fused node has no way to do.
Program fuse(const Program& program);

}  // namespace tracestep

// Fusion: replaces each region of elementwise ops, rotations, row ops and views by one node.
#pragma once

#include "ir/op_def.h"

namespace tracestep {

// Joins neighbours in the dataflow, and nodes that read the same operand, while the region can be
// computed in one walk (analysis/fused_body.h) and no path between its nodes leaves it. Only nodes
// of one phase and epoch are joined, and values read outside remain results, so what is saved for
// backward does not change. Where a reader would need a copy in another order, the region writes
// its result in that order. Casts of weights, gradients and the optimizer are not fused: their
// results take the storage of a leaf, and fused nodes have no donations. Several sums over parts of
// columns (passes/column_sums.h) are one launch.
Program fuse(const Program& program);

// A device without a kernel for it cannot run what `fuse` makes.
const OpDef& op_of_fused_nodes();

}  // namespace tracestep

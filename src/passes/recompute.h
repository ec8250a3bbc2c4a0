// Recomputation (activation checkpointing): forward nodes that run again in backward, directly
// before the nodes that read them, so that their results are not kept.
#pragma once

#include <vector>

#include "ir/program.h"
#include "run/recomputation.h"

namespace tracestep {

// Returns the program with `choice` applied, which is no budget (recompute_budget.h is for those).
// Backward nodes read copies of the forward nodes: same path, phase `recompute`, an epoch of its
// own for each time that a part is recomputed, so that no pass merges them again. A copy is made as
// late as it can be, before the first backward node that needs it. It computes the same bits,
// as it is the same op on the same operands.
//
// A part keeps what other nodes read and what it reads from outside. Nested parts keep only what is
// read after the last block or made before the first, and one input for each level of halving.
// Constants (rope tables, masks) are made again for each part. Error{kUsage} for a path under which
// the model has no node.
Program recompute(const Program& program, const Recomputation& choice);

// Does what recompute() does, for single nodes: if `again[n]`, the results of forward node `n`
// are not kept for backward but recomputed from what is kept. Results of other nodes are kept if
// backward or a recomputed node reads them. Constants are always kept.
Program recompute_nodes(const Program& program, const std::vector<bool>& again);

// Values of parts_of(), which returns the part of each node by its path: 0, 1, … in program
// order, or one of these two. `choice` must name paths. Throws what recompute() throws.
inline constexpr int kOutsideParts = -1;
inline constexpr int kConstantPart = -2;  // forward nodes computed from constants alone
std::vector<int> parts_of(const Program& program, const Recomputation& choice);

// Returns, for each node, whether it is computed from constants alone, as masks and tables are.
std::vector<bool> constant_nodes(const Program& program);

}  // namespace tracestep

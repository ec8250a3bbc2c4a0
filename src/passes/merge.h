// Fewer, larger matrix products.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Merges the products of weights that lie in one block of memory (BlockPart in ir/program.h):
// - those of one operand with every part become one product with the block, whose result has
//   theirs as slices (x·Wqᵀ, x·Wkᵀ, x·Wvᵀ);
// - a sum of products with every part becomes one product of an assembly of the other operands
//   with the block (dq·Wq + dk·Wk + dv·Wv);
// - products of those other operands with one value become a product of the assembly (dqᵀ·x,
//   dkᵀ·x, dvᵀ·x); where they are added to something, as gradients of micro-batches are, they
//   stay apart, since a product can add what it computes (passes/epilogue.h).
// Where weights are cast, their block is cast as one.
// Where backward reads some results of a merged product and not the others, it reads copies, so
// that it does not keep all of them (`forward_alone`: also of what it would copy itself). Leaves,
// updates and outputs stay as they are. A merged sum is rounded once, where the products were
// rounded one by one; other values are sums of the same terms.
Program merge(const Program& program, bool forward_alone = false);

}  // namespace tracestep

// Finds where a program computes the loss of logits and then the gradient of that loss.
#pragma once

#include <vector>

#include "analysis/readers.h"
#include "ir/op_def.h"

namespace tracestep {

struct LossPair {
  NodeId loss = kNoNode;
  NodeId gradient = kNoNode;  // The gradient, which is the only reader of the loss's row sums.
  // The cast of the gradient, if it is the gradient's only reader; kNoNode: there is no such cast.
  NodeId narrowing = kNoNode;
  ValueId logits = kNoValue;  // The logits in the dtype in which the gradient is needed.
};

// Returns the op of the loss and the op of its gradient.
std::vector<const OpDef*> loss_ops();

// Returns all pairs, in the order of the gradients. A gradient that depends on the loss itself
// makes no pair, because the two cannot be computed together.
std::vector<LossPair> find_loss_pairs(const Program& program, const Readers& readers);

}  // namespace tracestep

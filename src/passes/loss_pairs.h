// Finds where a program computes the loss of logits and then the gradient of that loss.
#pragma once

#include <vector>

#include "analysis/readers.h"
#include "ir/op_def.h"

namespace tracestep {

struct LossPair {
  NodeId loss = kNoNode;
  NodeId gradient = kNoNode;   // it alone reads the row sums of the loss
  NodeId narrowing = kNoNode;  // the cast that alone reads the gradient; kNoNode: none
  ValueId logits = kNoValue;   // in the dtype that the gradient is wanted in
};

// The op of the loss and that of its gradient.
std::vector<const OpDef*> loss_ops();

// In order of the gradients. A gradient that depends on the loss itself makes no pair: it cannot be
// computed in one go with the loss.
std::vector<LossPair> find_loss_pairs(const Program& program, const Readers& readers);

}  // namespace tracestep

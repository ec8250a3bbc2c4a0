// Where a step computes the loss of logits and then its gradient, both become one node, which
// writes the gradient over the logits.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Puts `cross_entropy_with_grad` in place of the two ops that it decomposes into. Logits that were
// widened for these two alone are read, and their gradient is written, in their own dtype. The loss
// is then known where the gradient was, and nodes that read it move behind that; a gradient that
// depends on the loss itself stays as it is.
Program overwrite(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep

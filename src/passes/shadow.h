// Keeps a low-precision copy ("shadow") of each weight, so that steps need not cast the weights.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Each cast of a float32 parameter (a node whose result has the role weight_cast) becomes the state
// shadow_name(). A program that updates a parameter and has its shadow writes the cast of the new
// value there: the one that reads the shadow in a whole step, another one where micro-batches read
// it. An op that widens its operands itself (OpDef::widens) reads gradients in their narrow dtype,
// without a cast. Values stay bit-identical as long as the states hold what the casts would give,
// which Store ensures.
Program shadow(const Program& program);

}  // namespace tracestep

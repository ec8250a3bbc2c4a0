// Weights kept in the low dtype beside the wide ones, so that no step casts them.
#pragma once

#include "ir/program.h"

namespace tracestep {

// In a program that updates its parameters under mixed precision: each cast of a parameter (a node
// whose result has the role weight_cast) becomes the state shadow_name(), updated by the same cast
// of the parameter's new value. Gradients that were widened for an op that widens what it reads
// (OpDef::widens) are read as the products made them. Values stay the same to the bit, as long as
// the states hold what the casts would give: Store sees to that.
Program shadow(const Program& program);

}  // namespace tracestep

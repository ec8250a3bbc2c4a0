// Elementwise arithmetic on integers and booleans: positions, masks, counters.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cpu {

// Runs an op of TRACESTEP_BINARY_OPS or TRACESTEP_COMPARE_OPS (ops/scalar/functors.h) on operands
// of one integer type. Sums and products wrap around; those of bool are true if not 0.
void integer_elementwise(const KernelCall& call);

}  // namespace tracestep::cpu

// Mixed precision: which ops run in a low dtype, by the precision class of their records.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Casts floating operands where the class of the reading op asks for it:
//   low      to `low` (matrix products)
//   full     low operands to float32 (norms, softmax, losses)
//   promote  all to the widest dtype among them (sums of a residual and a low result)
//   keep     as they are; where a movement op joins several, to the widest
// float64 operands are left alone. The result dtype is inferred from the new operands, so the class
// and the operand types explain the dtype an op runs in. A leaf keeps its type: its new value is
// cast back.
//
// A weight is cast once and all its readers share the cast, which backward reads too; it has
// Role::kWeightCast and the path of the weight's component. Any other cast belongs to one reader
// and has its origin, so that gradients of a value with several readers are added in the value's
// own dtype; `simplify` merges equal forward casts afterwards.
// `low`: bf16 or f16.
Program autocast(const Program& program, DType low);

}  // namespace tracestep

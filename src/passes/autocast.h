// Mixed precision: which ops run in a low dtype, by the precision class of their records.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Casts floating operands where the class of the reading op asks for it:
//   low      to `low` (matrix products)
//   full     low operands to float32 (norms, softmax, losses)
//   promote  all to the widest dtype among them (sums of a residual and a low result)
//   keep     as they are; where a movement op joins several, to the widest
// float64 operands are left alone. Results have the dtype that the op infers from its new operands,
// so which dtype an op ran in and why is its class and its operands' types. A leaf keeps its type:
// what updates it is cast back.
//
// A weight is cast once and all its readers share the cast, which backward reads too; it has
// Role::kWeightCast and the path of the weight's component. Any other cast belongs to one reader
// and has its origin: gradients of a value that fans out are then added in the value's own dtype,
// and `simplify` merges the forward casts all the same.
// `low`: bf16 or f16.
Program autocast(const Program& program, DType low);

}  // namespace tracestep

// A product whose result is added to another tensor becomes one op that does both, as a GEMM
// library can with its C operand; the sum then needs no launch of its own.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Puts `matmul_add` in place of a sum and the product behind one of its terms, through casts to a
// wider dtype and reshapes that nothing else reads. The product then stands where the sum stood,
// and is not rounded to its own dtype before it is added. Its origins are the product's alone.
Program epilogue(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep

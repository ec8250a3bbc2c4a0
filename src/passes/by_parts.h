// Products of float32 as products of float16 parts, which tensor cores multiply.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Sets `by_parts` of every float32 product that has at least 128 rows, columns and terms of each
// sum: smaller ones have less work than splitting their operands takes, and sums shorter than that
// are no better than the float32 units' own. Values keep their types; results agree with those of
// float32 products to their rounding (backends/cuda/split/product.h).
Program by_parts(const Program& program);

}  // namespace tracestep

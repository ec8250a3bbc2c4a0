// Codes of 8 bits as the ops that make them say it (ops/float8.cpp, ops/weight_codes.cpp).
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep::ops {

// dtype, largest and room.
std::vector<AttrDef> delayed_attrs();
// Rows of operands and results of products of codes begin at multiples of 16 bytes.
inline constexpr std::int64_t kWholeRow = 16;
// Checks the dtype of codes; those of programs in float64 are not rounded.
void require_codes(const OpCall& call, DType dtype);

// --- parts of decompositions, by those attributes ---
// The largest magnitude of a tensor, at least 2^-100: rank 0.
Val largest_magnitude(const OpExpansion& expansion, Val x);
// The magnitude that has the largest code where `last` was the largest one in the step before.
Val reach_of(const OpExpansion& expansion, Val last);
// The magnitude that has the largest code where `now` is the largest one: reach_of(last) where
// both are near enough to each other, else `now`.
Val checked_reach(const OpExpansion& expansion, Val now, Val last);
// Codes of which `reach` is the largest magnitude; their scale; codes, transposed codes and scale.
Val codes_below(const OpExpansion& expansion, Val x, Val reach);
Val scale_of(const OpExpansion& expansion, Val reach);
std::vector<Val> codes_up_to(const OpExpansion& expansion, Val x, Val reach);

}  // namespace tracestep::ops

// Helpers shared by the ops that make 8-bit codes (ops/float8.cpp, ops/weight_codes.cpp).
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep::ops {

// Returns the attributes of delayed scaling: dtype, largest and room.
std::vector<AttrDef> delayed_attrs();
// Sizes of matrices of codes are multiples of this: their rows begin at multiples of 16 bytes.
inline constexpr std::int64_t kWholeRow = 16;
// Throws unless codes can have this dtype: float8, or float64 in programs that do not round codes.
void require_codes(const OpCall& call, DType dtype);

// --- parts of decompositions, by those attributes ---
// Returns the largest magnitude of a tensor, at least 2^-100: rank 0.
Val largest_magnitude(const OpExpansion& expansion, Val x);
// Returns the magnitude that gets the largest code if `last` was the largest one a step before.
Val reach_of(const OpExpansion& expansion, Val last);
// Returns the magnitude that gets the largest code if the largest magnitude of the tensor is `now`:
// reach_of(last) if the two are close enough, else `now`.
Val checked_reach(const OpExpansion& expansion, Val now, Val last);
// Quantize x so that the magnitude `reach` gets the largest code, and return: the codes; the scale
// of codes; codes, transposed codes and scale.
Val codes_below(const OpExpansion& expansion, Val x, Val reach);
Val scale_of(const OpExpansion& expansion, Val reach);
std::vector<Val> codes_up_to(const OpExpansion& expansion, Val x, Val reach);

}  // namespace tracestep::ops

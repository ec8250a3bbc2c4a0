// Codes of 8 bits as the ops that make them say it (ops/float8.cpp, ops/weight_codes.cpp).
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep::ops {

// dtype, largest and room.
std::vector<AttrDef> delayed_attrs();

// --- parts of decompositions, by those attributes ---
// The largest magnitude of a matrix, at least 2^-100: rank 0.
Val largest_magnitude(const OpExpansion& expansion, Val x);
// The magnitude that has the largest code where `last` was the largest one in the step before.
Val reach_of(const OpExpansion& expansion, Val last);
// Codes of which `reach` is the largest magnitude, transposed codes and their scale.
std::vector<Val> codes_up_to(const OpExpansion& expansion, Val x, Val reach);

}  // namespace tracestep::ops

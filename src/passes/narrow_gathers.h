// Weights that are parts are gathered in the dtype in which they are read.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Where all readers of a gathered parameter cast it to one low dtype, each rank casts its part and
// gathers that: the same bits in half the bytes. The cast has Role::kWeightCast.
Program narrow_gathers(const Program& program);

}  // namespace tracestep

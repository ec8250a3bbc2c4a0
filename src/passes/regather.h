// Weights that were gathered for forward are given up, and gathered again for backward.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Backward and recomputed nodes read a second all_gather of the same part, which stands before the
// first of them, and what forward made of the weights alone (views, casts) is made from it again.
Program regather(const Program& program);

}  // namespace tracestep

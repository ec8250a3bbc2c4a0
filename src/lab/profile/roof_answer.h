// The answer about rooflines: what bounds the kernels of a step, which of them pass their roof, and
// which is far below it.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

// `all`: the row of the table "passes" for the whole step; its kernels are those of "matrix@" with
// its label, and their ceilings those of "ceilings". Unsupported when these were not measured.
Text beside_roofs(const Evidence& e, const Evidence::Row& all);

}  // namespace tracestep

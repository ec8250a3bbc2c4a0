// The same program in float64: what the reference back end runs.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Every floating leaf, generator and cast target becomes f64, inside the bodies of fused nodes
// too; integers and booleans stay. Casts between floating types are kept, as copies.
Program as_float64(const Program& program);

}  // namespace tracestep

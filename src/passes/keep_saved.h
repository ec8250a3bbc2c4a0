// Forward alone, keeping what backward would need: the `forward` mode of the benchmarks.
#pragma once

#include "ir/program.h"

namespace tracestep {

// From a program with forward and backward: drops everything but forward, and makes each forward
// value that backward reads an output "saved.N". Gradient outputs and updates are removed.
Program keep_saved(const Program& program);

}  // namespace tracestep

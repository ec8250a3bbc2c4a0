// The order in which nodes run.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Keeps the program's order, but makes constants (generators) directly before their first reader,
// so that none is alive longer than it must be.
Program schedule(const Program& program);

}  // namespace tracestep

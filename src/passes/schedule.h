// The order in which nodes run.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Keeps the program's order, but moves generators (constants) directly before their first reader,
// so that they are alive as briefly as possible.
Program schedule(const Program& program);

}  // namespace tracestep

// When weights are updated: after backward, or inside it.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Moves every update into backward, directly behind what comes last: its gradient, or a reader of
// what it overwrites. So the gradients are never all alive at once. The nodes are the same, and so
// are their results. Updates that wait for all gradients, as clipping by their norm does, stay at
// the end.
Program update_early(const Program& program);

}  // namespace tracestep

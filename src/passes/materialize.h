// Makes every copy explicit: no kernel and no view ever copies silently.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Inserts `copy` before a movement op whose result cannot be a view and where an op does not accept
// an operand's strides, and `assign` where an update does not end in its leaf's own buffer. All
// readers share a copy. The result passes verify(…, kMaterialized).
Program materialize(const Program& program);

// The last part of it alone, for a pass that orders a materialized program anew: `assign` where an
// update no longer ends in its leaf's own buffer.
Program assign_updates(Program program);

}  // namespace tracestep

// Makes every copy explicit: no kernel and no view ever copies silently.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Inserts `copy` where a view cannot be one and where an op does not accept an operand's strides,
// and `assign` where an update does not end in its leaf's own buffer. Copies are shared by all
// readers. The result passes verify(…, kMaterialized).
Program materialize(const Program& program);

}  // namespace tracestep

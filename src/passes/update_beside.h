// Updates beside backward: on the lane on which they run while the products of other layers do.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Moves updates that have all they read before the last matrix product of the step behind it
// (update_early()), and puts them on lane 1 (analysis/lanes.h). With `joins` those of a layer, and
// those outside all layers, become one call each, which takes in the casts to narrow copies. On
// lane 0 stay updates that no product follows, those of vectors, which are too small, and those
// whose results another node reads. Where each waits for all gradients, as clipping does, nothing
// changes. Values stay bit-identical. `has_kernel`: whether the device can run the op of the joined
// call.
Program update_beside(const Program& program, bool joins,
                      const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep

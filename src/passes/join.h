// Merges the optimizer updates of all tensors into one launch.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Calls that differ only in their tensors become one call (OpDef::join), placed where the last of
// them was; the casts that update their shadows (passes/shadow.h) are merged in too. Values stay
// bit-identical. `has_kernel`: whether the device can run the op of the merged call.
Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep

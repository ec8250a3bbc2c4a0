// One launch for the updates of all tensors.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Calls that differ in their tensors alone become one (OpDef::join), where the last of them stands,
// together with the casts that keep shadows (passes/shadow.h) of what they update. Values stay the
// same to the bit. `has_kernel`: whether the device can run the op that the rule leads to.
Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tracestep

// Merges the optimizer updates of all tensors into one launch.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/op_def.h"

namespace tracestep {

// Calls that differ only in their tensors become one call (OpDef::join), and the casts that update
// their shadows (passes/shadow.h) are merged in; it stands where the last of all these did. Values
// stay bit-identical. `has_kernel`: whether the device can run the op of the merged call.
Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel);
// The same for each part by itself. `part_of`: the part that a call belongs to; nullopt: it stays
// as it is.
Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of);

}  // namespace tracestep

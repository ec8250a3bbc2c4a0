// Replaces composite ops by simpler ones until only wanted ops are left.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Expands every node for which `expand` says so and whose op has a decomposition, also the nodes
// that an expansion brings in. Gradients of expanded ops are those of their parts.
Program decompose(const Program& program, const std::function<bool(const OpDef&)>& expand);

}  // namespace tracestep

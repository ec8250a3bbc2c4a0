// Replaces composite ops by simpler ones until only wanted ops are left.
#pragma once

#include <functional>

#include "ir/op_def.h"

namespace tracestep {

// Expands every node whose op has a decomposition and for which `expand` returns true, including
// nodes made by an expansion. Autograd then differentiates the parts.
Program decompose(const Program& program, const std::function<bool(const OpDef&)>& expand);

// The ops that a call of the composite `op` on such operands is made of, in order; its attributes
// have their defaults.
std::vector<const OpDef*> parts_of(const OpDef& op, const std::vector<Type>& operands);

}  // namespace tracestep

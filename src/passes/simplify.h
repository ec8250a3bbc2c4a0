// Common subexpressions, identities and dead code.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Merges equal nodes of the same phase and epoch (across phases a merge would lengthen lifetimes),
// drops movement that changes nothing, and removes unread nodes. Values stay bit-identical.
Program simplify(const Program& program);

// Removes dead code only.
Program remove_dead_nodes(const Program& program);

}  // namespace tracestep

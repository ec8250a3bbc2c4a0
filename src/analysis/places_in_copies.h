// Memory of narrow copies of weights, which is free for a while in every step: backward has read a
// copy for the last time when the gradient of its weight is made, and the update writes the copy
// anew without reading it. A gradient of the copy's dtype lies there meanwhile, at no bytes of its
// own.
#pragma once

#include <map>

#include "ir/program.h"

namespace tracestep {

// Returns, by value, the leaf at whose beginning it lies: a narrow copy, or the first of several
// that lie side by side in a block as the value's parts do. Such a value has the bytes of the
// copies, is made after their last reader, and is read for the last time by the update that
// writes them, or before. A copy whose gradient has another dtype may hold another value of its
// type, such as a term of it. Empty where the program uses several lanes or ranks, whose order
// is not that of its nodes.
std::map<ValueId, ValueId> places_in_copies(const Program& program);

}  // namespace tracestep

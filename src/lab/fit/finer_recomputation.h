// Recomputes less than whole parts, or more than once: a search tries it when it knows the set of
// changes of whole parts.
#pragma once

#include <optional>
#include <vector>

#include "lab/fit/remedy.h"

namespace tracestep {

// Refines the set with the least peak where no set fits: tries nested blocks and, for small steps,
// what fits the limit with its margin, chosen node by node. Returns those that fit, fastest first.
std::vector<Remedy> finer_recomputations(Judge& judge, const Remedy& least);

// A set that fits, with what it computes again chosen node by node; nullopt: it computes nothing
// again, that takes no less time, or the step has too many kernels to choose.
std::optional<Remedy> chosen_by_node(Judge& judge, const Remedy& r);

}  // namespace tracestep

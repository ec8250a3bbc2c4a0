// How the time and bytes of a node that stands for several are shared out among its origins.
#pragma once

#include <vector>

#include "ir/program.h"

namespace tracestep {

// By origin; the shares add up to 1. They are modelled, by the bytes that the parts would move if
// each ran by itself: the parts of a decomposition by their own origins, those of a merged call
// (OpDef::donates_in_groups) by its groups, which are in the order of the origins. A node whose
// parts cannot be told apart is shared out evenly.
std::vector<double> origin_shares(const Program& program, const Node& node);

}  // namespace tracestep

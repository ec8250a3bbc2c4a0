// Weights of 4 bits that ranks divide (`split`).
#pragma once

#include <set>
#include <string>

#include "ir/program.h"

namespace tracestep {

// keep_nf4() (form_passes.h) where each of `ranks` has a part of the weights: whole blocks of the
// whole matrix's, and a scale for as many of its blocks as have one there. Error{kUsage} where
// blocks would be cut.
Program keep_nf4_of_ranks(const Program& program, const std::set<std::string>& kept, int ranks);

}  // namespace tracestep

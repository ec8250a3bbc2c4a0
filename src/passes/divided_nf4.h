// 4-bit weights that the ranks of a replica divide (the pass `split`).
#pragma once

#include <set>
#include <string>

#include "ir/program.h"

namespace tracestep {

// Does what keep_nf4() (form_passes.h) does where each of `ranks` has a part of the weights. A
// part consists of whole blocks of the whole matrix, and has a scale for each group of those
// blocks that share one. Throws Error{kUsage} if a block would be cut.
Program keep_nf4_of_ranks(const Program& program, const std::set<std::string>& kept, int ranks);

}  // namespace tracestep

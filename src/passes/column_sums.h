// Ops on rows that also sum columns (the gradient of a norm's weight), in parts that can be fused.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Replaces such an op by its decomposition, where each column is summed in two steps: over the rows
// of a part, which a block of a fused kernel does while it has the rows, then over the parts. Ops
// with too few rows, and those that still would not fit into one walk, stay as they are.
Program split_column_sums(const Program& program);

// Makes one launch of several of the sums over parts that the split leaves: their parts are
// assembled side by side, and collectives that carry their results wait for it. Sums that others
// read too early for that stay alone.
Program merge_column_sums(const Program& program);

}  // namespace tracestep

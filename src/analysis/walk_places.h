// Where each value of a fused body lies in the walk over its points.
#pragma once

#include "analysis/fused_body.h"

namespace tracestep {

// Sets `count`, `width`, `rows_per_block`, `has_pairs` and `places` from the body's program: the
// values that decide the order of the walk come first (rows that are reduced, pairs, then the
// largest result), and every op and view passes places on between its operands and results. False:
// two ops want different orders, or a value has no place in a single walk. Constants get no place
// unless a reader gives them one.
bool place_values(FusedBody& body);

// Whether the node fills its result with one value, which a fused kernel has as a literal.
bool is_constant(const Node& node);

}  // namespace tracestep

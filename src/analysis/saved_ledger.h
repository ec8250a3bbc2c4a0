// The ledger of what a step saves for backward: every kept value, its readers, how long it is kept,
// and the cost of recomputing it instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/cost.h"
#include "analysis/saved.h"
#include "ir/program.h"

namespace tracestep {

// The forward nodes that recompute one value, in order, from the other saved values and the leaves.
// Views are not listed: they cost nothing.
struct Recompute {
  std::vector<NodeId> nodes;
  Cost cost;
};

struct LedgerItem : Saved {
  // The last reader; kNoNode: mode `forward`, in which outputs keep the value.
  NodeId last_reader = kNoNode;
  Recompute again = {};
};

// Returns the ledger's items in program order.
std::vector<LedgerItem> saved_ledger(const Program& program);

// Returns the block of a path: "layers.3" for "layers.3.attn.softmax"; "once" for a path outside
// the layers.
std::string block_of(const std::string& path);

}  // namespace tracestep

// The ledger of what a step saves for backward: every kept value, who wants it, how long it stays,
// and what it would cost to compute it again instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/cost.h"
#include "analysis/saved.h"
#include "ir/program.h"

namespace tracestep {

// The forward nodes that would run again for one value, in order, when everything else that is
// kept (saved values and leaves) is there. Views are not listed: they cost nothing.
struct Recompute {
  std::vector<NodeId> nodes;
  Cost cost;
};

struct LedgerItem : Saved {
  NodeId last_reader = kNoNode;  // kNoNode: mode `forward`, where outputs keep it
  Recompute again = {};
};

// In program order.
std::vector<LedgerItem> saved_ledger(const Program& program);

// "layers.3" of "layers.3.attn.softmax"; what belongs to no layer is "once".
std::string block_of(const std::string& path);

}  // namespace tracestep

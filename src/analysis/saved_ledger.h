// The ledger of what a step saves for backward: every kept value, who wants it, how long it stays,
// and what it would cost to compute it again instead.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "analysis/cost.h"
#include "ir/program.h"

namespace tracestep {

// The forward nodes that would run again for one value, in order, when everything else that is
// kept (saved values and leaves) is there. Views are not listed: they cost nothing.
struct Recompute {
  std::vector<NodeId> nodes;
  Cost cost;
};

struct LedgerItem {
  ValueId value = kNoValue;
  NodeId producer = kNoNode;
  std::int64_t bytes = 0;
  std::vector<NodeId> readers = {};  // backward nodes, in order; empty: mode `forward` keeps it
  NodeId last_reader = kNoNode;
  Recompute again = {};
};

// In program order. Values that share one buffer through a reshape are listed once; parameters and
// inputs are not listed: they are there anyway.
std::vector<LedgerItem> saved_ledger(const Program& program);

// The values that nodes of later phases read, or outputs `saved.N`, by the buffer's first owner.
std::set<ValueId> saved_values(const Program& program);

// "layers.3" of "layers.3.attn.softmax"; what belongs to no layer is "once".
std::string block_of(const std::string& path);

}  // namespace tracestep

#include "analysis/saved_ledger.h"

#include <set>

#include "ir/layer_path.h"

namespace tracestep {
namespace {

// Adds to `nodes` all that must run to compute `base` from the values in `kept` and the leaves.
void collect(const Program& program, const std::set<ValueId>& kept, ValueId base,
             std::set<NodeId>& nodes) {
  const NodeId producer = program.value(base).producer;
  if (producer == kNoNode || nodes.contains(producer)) return;
  nodes.insert(producer);
  for (ValueId input : program.node(producer).inputs) {
    const ValueId needed = program.value(input).layout.base;
    if (!kept.contains(needed)) collect(program, kept, needed, nodes);
  }
}

}  // namespace

std::vector<LedgerItem> saved_ledger(const Program& program) {
  const std::vector<Saved> all = saved_for_backward(program);
  std::set<ValueId> kept;
  for (const Saved& saved : all) kept.insert(saved.value);
  std::vector<LedgerItem> out;
  for (const Saved& saved : all) {
    LedgerItem item{saved, saved.readers.empty() ? kNoNode : saved.readers.back()};
    std::set<NodeId> nodes;
    collect(program, kept, saved.value, nodes);
    item.again.nodes.assign(nodes.begin(), nodes.end());
    for (NodeId id : item.again.nodes) item.again.cost += cost_of(program, program.node(id));
    out.push_back(std::move(item));
  }
  return out;
}

std::string block_of(const std::string& path) {
  const std::string_view layer = layer_of(path);
  return layer.empty() ? "once" : std::string(layer);
}

}  // namespace tracestep

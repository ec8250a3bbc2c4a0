#include "analysis/saved_ledger.h"

#include <algorithm>
#include <map>

#include "ir/op_def.h"

namespace tracestep {
namespace {

bool makes_view(const Program& program, const Node& node) {
  return node.op->is_view() && is_view(program, node.outputs[0]);
}

ValueId base_of(const Program& program, ValueId id) {
  return program.value(id).layout.base;
}

// A value that a forward node made.
bool is_forward(const Program& program, ValueId base) {
  const NodeId producer = program.value(base).producer;
  return producer != kNoNode && program.node(producer).origin().phase == Phase::kForward;
}

// Backward readers by base value.
std::map<ValueId, std::vector<NodeId>> readers_of(const Program& program) {
  std::map<ValueId, std::vector<NodeId>> out;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (node.origin().phase != Phase::kBackward || makes_view(program, node)) continue;
    for (ValueId input : node.inputs) {
      const ValueId base = base_of(program, input);
      if (!is_forward(program, base)) continue;
      std::vector<NodeId>& list = out[base];
      if (list.empty() || list.back() != static_cast<NodeId>(i)) {
        list.push_back(static_cast<NodeId>(i));
      }
    }
  }
  for (const Output& o : program.outputs) {
    if (o.name.starts_with("saved.")) out[base_of(program, o.value)];
  }
  return out;
}

// Adds the nodes that must run for `base`, those of its operands first.
void collect(const Program& program, const std::map<ValueId, std::vector<NodeId>>& kept,
             ValueId base, std::set<NodeId>& nodes) {
  const NodeId producer = program.value(base).producer;
  if (producer == kNoNode || nodes.contains(producer)) return;
  nodes.insert(producer);
  for (ValueId input : program.node(producer).inputs) {
    const ValueId needed = base_of(program, input);
    if (!kept.contains(needed)) collect(program, kept, needed, nodes);
  }
}

}  // namespace

std::set<ValueId> saved_values(const Program& program) {
  std::set<ValueId> out;
  for (const auto& [base, readers] : readers_of(program)) out.insert(base);
  return out;
}

std::vector<LedgerItem> saved_ledger(const Program& program) {
  const auto kept = readers_of(program);
  std::vector<LedgerItem> out;
  for (const auto& [base, readers] : kept) {
    const Value& v = program.value(base);
    if (v.producer == kNoNode) continue;
    LedgerItem item{.value = base,
                    .producer = v.producer,
                    .bytes = v.type.bytes(),
                    .readers = readers,
                    .last_reader = readers.empty() ? kNoNode : readers.back()};
    std::set<NodeId> nodes;
    collect(program, kept, base, nodes);
    item.again.nodes.assign(nodes.begin(), nodes.end());
    for (NodeId id : item.again.nodes) item.again.cost += cost_of(program, program.node(id));
    out.push_back(std::move(item));
  }
  std::ranges::stable_sort(out, {}, &LedgerItem::producer);
  return out;
}

std::string block_of(const std::string& path) {
  constexpr std::string_view kLayers = "layers.";
  if (!path.starts_with(kLayers)) return "once";
  return path.substr(0, path.find('.', kLayers.size()));
}

}  // namespace tracestep

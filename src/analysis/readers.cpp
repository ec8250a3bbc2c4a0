#include "analysis/readers.h"

#include <algorithm>

#include "base/indexed.h"

namespace tracestep {

Readers::Readers(const Program& program)
    : nodes(program.values.size()), at_end(program.values.size(), false) {
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    for (ValueId id : program.nodes[i].inputs) nodes[at(id)].push_back(static_cast<NodeId>(i));
  }
  for (const Output& o : program.outputs) at_end[at(o.value)] = true;
  for (const Update& u : program.updates) at_end[at(u.value)] = true;
}

NodeId Readers::only(ValueId id) const {
  const std::vector<NodeId>& readers = nodes[at(id)];
  return readers.size() == 1 && !at_end[at(id)] ? readers.front() : kNoNode;
}

bool can_wait(const Program& program, const Node& node, NodeId until) {
  return std::ranges::none_of(program.updates, [&](const Update& u) {
    const NodeId updated_by = program.value(u.value).producer;
    if (updated_by == kNoNode || updated_by > until) return false;
    return std::ranges::any_of(node.inputs, [&](ValueId input) {
      const std::vector<ValueId> leaves = leaves_of(program, input);
      return std::ranges::find(leaves, u.leaf) != leaves.end();
    });
  });
}

}  // namespace tracestep

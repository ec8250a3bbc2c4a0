#include "analysis/readers.h"

namespace tracestep {
namespace {

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

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

}  // namespace tracestep

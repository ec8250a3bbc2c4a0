#include "passes/keep_saved.h"

#include <set>

#include <fmt/format.h>

#include "ir/rewrite.h"
#include "passes/simplify.h"

namespace tracestep {

Program keep_saved(const Program& program) {
  std::set<ValueId> forward, saved;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == Phase::kForward) {
      forward.insert(node.outputs.begin(), node.outputs.end());
      continue;
    }
    for (ValueId input : node.inputs) {
      if (forward.contains(input)) saved.insert(program.value(input).layout.base);
    }
  }
  Program body = program;
  body.updates.clear();
  std::erase_if(body.outputs, [&](const Output& o) { return !forward.contains(o.value); });
  int index = 0;
  for (ValueId id : saved) {
    if (program.value(id).producer == kNoNode) continue;  // a leaf is there anyway
    body.outputs.push_back({fmt::format("saved.{}", index++), id});
  }
  return remove_dead_nodes(body);
}

}  // namespace tracestep

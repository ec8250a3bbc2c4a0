#include "passes/kernel_passes.h"

#include "ir/rewrite.h"

namespace tracestep {

Program schedule(const Program& program) {
  Rewriter r(program, "schedule");
  std::vector<bool> done(program.nodes.size(), false);
  const auto emit = [&](auto&& self, NodeId id) -> void {
    const auto at = static_cast<std::size_t>(id);
    if (done[at]) return;
    const Node& node = program.nodes[at];
    for (ValueId input : node.inputs) {
      const NodeId maker = program.value(input).producer;
      if (maker != kNoNode) self(self, maker);
    }
    done[at] = true;
    r.copy(node);
  };
  const auto waits = [&](const Node& node) {
    if (node.op->kernel_class == KernelClass::kGenerator) return true;
    // A view of a generator moves together with it.
    return node.op->is_view() &&
           !done[static_cast<std::size_t>(std::max(program.value(node.inputs[0]).producer, 0))] &&
           program.value(node.inputs[0]).producer != kNoNode;
  };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!waits(program.nodes[i])) emit(emit, static_cast<NodeId>(i));
  }
  // Nodes that are still waiting are read by outputs only.
  for (std::size_t i = 0; i < program.nodes.size(); ++i) emit(emit, static_cast<NodeId>(i));
  return r.finish();
}

}  // namespace tracestep

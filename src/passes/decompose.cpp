#include "passes/decompose.h"

#include "ir/rewrite.h"

namespace tracestep {
namespace {

Program one_round(const Program& program, const std::function<bool(const OpDef&)>& expand,
                  bool& changed) {
  Rewriter r(program, "decompose");
  for (const Node& node : program.nodes) {
    if (!node.op->decompose || !expand(*node.op)) {
      r.copy(node);
      continue;
    }
    changed = true;
    const auto guard = r.from(node);
    const std::vector<Val> inputs = r.inputs(node);
    r.replace(node, node.op->decompose({r.builder(), node.attrs, inputs, {}, {}, {}}));
  }
  return r.finish();
}

}  // namespace

Program decompose(const Program& program, const std::function<bool(const OpDef&)>& expand) {
  Program out = program;
  bool changed = true;
  // Expansions nest a few levels deep; a cycle between two decompositions is a bug.
  for (int round = 0; changed; ++round) {
    TRACESTEP_CHECK(round < 32, "decompositions form a cycle");
    changed = false;
    Program next = one_round(out, expand, changed);
    if (changed) out = std::move(next);
  }
  return out;
}

}  // namespace tracestep

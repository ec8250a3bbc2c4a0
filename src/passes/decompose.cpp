#include "passes/form_passes.h"

#include <fmt/format.h>

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

std::vector<const OpDef*> parts_of(const OpDef& op, const std::vector<Type>& operands) {
  Builder b("parts");
  std::vector<Val> inputs;
  for (const Type& type : operands) {
    inputs.push_back(b.input(fmt::format("x{}", inputs.size()), type));
  }
  b.call(op, inputs);
  const Attrs attrs = b.program().nodes.front().attrs;
  op.decompose({b, attrs, inputs, {}, {}, {}});
  std::vector<const OpDef*> out;
  for (const Node& node : b.program().nodes) out.push_back(node.op);
  out.erase(out.begin());
  return out;
}

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

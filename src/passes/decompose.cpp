#include "passes/form_passes.h"
#include "passes/pass_rules.h"

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

namespace {

// True for a composite that the granularity does not keep, unless the user chose it explicitly.
bool is_taken_apart(const PassOptions& o, const OpDef& op) {
  return !o.run.ops.keeps(op.composite) && !op.stays_whole;
}

// True for a product with a bias, which frameworks have as one primitive op. It is one op for its
// dtype's sake: without autocast, a product and a sum have the same values.
bool is_biased_product(const OpDef& op) {
  return op.product && op.decompose;
}

}  // namespace

// Expands composites that the run's granularity does not keep, and ops without a gradient rule;
// in a program without backward such an op is kept if it has a kernel.
Program decompose(const Program& p, const PassOptions& o) {
  return decompose(p, [&](const OpDef& op) {
    if (is_biased_product(op)) return !o.casts();
    const bool kept = op.gradient || (!o.differentiates() && o.has_kernel(op));
    return is_taken_apart(o, op) || !kept;
  });
}

Program lower(const Program& p, const PassOptions& o) {
  return decompose(p, [&](const OpDef& op) {
    return (is_taken_apart(o, op) && !is_biased_product(op)) || !o.has_kernel(op);
  });
}

}  // namespace tracestep

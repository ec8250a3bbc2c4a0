// A fused node: several ops as one kernel. Its body is a program of its own; on a back end without
// fused kernels the node is replaced by its body.
#include "ir/rewrite.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

std::vector<Type> body_types(const OpCall& c) {
  const Program& body = c.attrs.region("body");
  if (body.leaves.size() != c.inputs.size()) {
    fail_usage(c.op, "the body has {} inputs, {} operands are given", body.leaves.size(),
               c.inputs.size());
  }
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (body.type(body.leaves[i]) != c.inputs[i]) {
      fail_usage(c.op, "operand {} is {}, the body expects {}", i, c.inputs[i].str(),
                 body.type(body.leaves[i]).str());
    }
  }
  std::vector<Type> out;
  out.reserve(body.outputs.size());
  for (const Output& o : body.outputs) out.push_back(body.type(o.value));
  if (out.empty()) fail_usage(c.op, "the body has no outputs");
  return out;
}

std::int64_t body_flops(const OpCall& c) {
  const Program& body = c.attrs.region("body");
  std::int64_t total = 0;
  for (const Node& node : body.nodes) {
    if (!node.op->flops) continue;
    std::vector<Type> in, out;
    for (ValueId id : node.inputs) in.push_back(body.type(id));
    for (ValueId id : node.outputs) out.push_back(body.type(id));
    total += node.op->flops({*node.op, node.attrs, in, out});
  }
  return total;
}

}  // namespace

void register_fused() {
  register_op({.name = "fused",
               .doc = "The nodes of `body` as one kernel: operands in, outputs out, nothing kept.",
               .inputs = {"xs..."},
               .outputs = {"ys..."},
               .attrs = {{"body", AttrKind::kRegion, std::nullopt, "the fused program"},
                         {"in_place", AttrKind::kBool, AttrValue(false),
                          "results may lie where operands do, element by element"}},
               .kernel_class = KernelClass::kFused,
               .precision_class = PrecisionClass::kKeep,
               .infer = body_types,
               .accepts = rules::any_strides,
               .writes = rules::any_strides,
               .decompose =
                   [](const OpExpansion& e) {
                     return inline_program(e.builder, e.attrs.region("body"), e.inputs);
                   },
               .flops = body_flops,
               .always_decompose = true});
}

}  // namespace tracestep::ops

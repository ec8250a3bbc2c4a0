// Tensors that consist of several values without a copy: a block of leaves that lie side by side,
// and an assembly, whose parts are written into it by the nodes that compute them.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

void register_block() {
  register_op({.name = "block",
               .doc =
                   "Leaves that follow one another in a block of memory, as one tensor: one after "
                   "another along the first axis.",
               .inputs = {"xs..."},
               .outputs = {"y"},
               .kernel_class = KernelClass::kView,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     rules::require_min_rank(c, 0, 1);
                     return rules::concatenated(c, 0);
                   },
               .view = [](const OpCall& c, const Layout& from) -> std::optional<Layout> {
                 return Layout{kNoValue, from.offset, contiguous_strides(c.outputs[0].shape)};
               },
               .cheap_to_recompute = true});
}

// Returns where operand `input` lies in the result: right after the operands before it.
Layout part_of_assembly(const OpCall& c, int input) {
  const Shape& whole = c.outputs[0].shape;
  const int axis = rules::normalized_axis(c, c.attrs.integer("axis"), whole.rank());
  Layout out{kNoValue, 0, contiguous_strides(whole)};
  for (int i = 0; i < input; ++i) {
    out.offset += c.inputs[static_cast<std::size_t>(i)].shape[axis] * out.strides[axis];
  }
  return out;
}

void register_assemble() {
  register_op({.name = "assemble",
               .doc =
                   "Operands one after another along `axis`, each written there by the node that "
                   "computes it.",
               .inputs = {"xs..."},
               .outputs = {"y"},
               .attrs = {{"axis", AttrKind::kInt, std::nullopt, "joined axis"}},
               .kernel_class = KernelClass::kView,
               .precision_class = PrecisionClass::kKeep,
               .infer = rules::concatenated_along_axis,
               .accepts = rules::any_strides,
               .part = part_of_assembly,
               .decompose = [](const OpExpansion& e) {
                 const std::vector<Val> parts(e.inputs.begin(), e.inputs.end());
                 return std::vector{concat(parts, static_cast<int>(e.attrs.integer("axis")))};
               }});
}

}  // namespace

void register_assembly() {
  register_block();
  register_assemble();
}

}  // namespace tracestep::ops

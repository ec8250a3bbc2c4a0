#include "passes/form_passes.h"

#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/nf4_codes.h"

namespace tracestep {
namespace {

// Frozen matrices within the layers that products alone read, as their second operand.
std::vector<bool> kept_in_codes(const Program& program, const std::set<std::string>& kept) {
  std::vector<bool> out(program.values.size(), false);
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    out[at(id)] = leaf.leaf == LeafKind::kConstant && leaf.type.shape.rank() == 2 &&
                  is_floating(leaf.type.dtype) && leaf.type.count() % kNf4Block == 0 &&
                  leaf.type.shape[1] % 2 == 0 && !layer_of(leaf.name).empty() &&
                  !kept.contains(leaf.name);
  }
  std::vector<bool> is_read(program.values.size(), false);
  for (const Node& node : program.nodes) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      is_read[at(node.inputs[i])] = true;
      if (i != 1 || !node.op->product) out[at(node.inputs[i])] = false;
    }
  }
  for (const Output& o : program.outputs) out[at(o.value)] = false;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i] && is_read[i];
  return out;
}

}  // namespace

Program keep_nf4(const Program& program, const std::set<std::string>& kept) {
  const std::vector<bool> chosen = kept_in_codes(program, kept);
  Program leaves = program;
  std::set<std::string> blocks;
  for (const ValueId id : program.leaves) {
    if (chosen[at(id)]) blocks.insert(program.value(id).part.block);
  }
  for (const ValueId id : program.leaves) {
    Value& leaf = leaves.values[at(id)];
    if (blocks.contains(leaf.part.block)) leaf.part = {};
    if (!chosen[at(id)]) continue;
    leaf.name += kNf4Codes;
    leaf.type = {DType::kU8, {leaf.type.shape[0], leaf.type.shape[1] / 2}};
  }
  Rewriter r(leaves, "keep_nf4");
  std::vector<Val> wide(program.values.size());
  const auto widened = [&](ValueId id, const Node& reader) {
    Val& out = wide[at(id)];
    if (out) return out;
    const auto guard = r.from(reader);
    const Value& weight = program.value(id);
    const std::int64_t count = weight.type.count();
    const auto constant = [&](std::string_view what, DType dtype, std::int64_t size) {
      return r.builder().leaf(LeafKind::kConstant, weight.name + std::string(what),
                              {dtype, {size}});
    };
    return out = r.builder().call1(
               "widen_nf4",
               {r.map(id), constant(kNf4Magnitudes, DType::kU8, nf4_blocks(count)),
                constant(kNf4Scales, DType::kF32, nf4_groups(count)),
                constant(kNf4Offset, DType::kF32, 1)},
               {{"dtype", weight.type.dtype}, {"shape", weight.type.shape}});
  };
  for (const Node& node : program.nodes) {
    std::vector<Val> inputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(chosen[at(id)] ? widened(id, node) : r.map(id));
    }
    r.copy(node, inputs);
  }
  return r.finish();
}

}  // namespace tracestep

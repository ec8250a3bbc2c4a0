#include "passes/form_passes.h"

#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/nf4_codes.h"
#include "passes/divided_nf4.h"
#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// The shapes of a matrix's magnitudes and scales, or of those of a rank's part.
struct Statistics {
  Shape magnitudes, scales;
  std::int64_t group = kNf4Group;  // blocks with one scale
};

// Returns the shapes of a weight's statistics. Where a rank's part (split by columns: each of
// its rows) is no multiple of the 256 blocks that share a scale, fewer blocks share one.
Statistics statistics_of(const Value& weight, int ranks) {
  const std::int64_t count = weight.type.count(), blocks = nf4_blocks(count);
  const auto axis = ranks > 1 ? split_axis(weight.name) : std::nullopt;
  if (!axis) return {{blocks}, {nf4_groups(count)}};
  const Shape& shape = weight.type.shape;
  const bool by_columns = *axis == 1;
  const std::int64_t together = by_columns ? shape[1] : count;
  if (together % kNf4Block != 0) {
    throw Error(
        ErrorCode::kUsage, "lora",
        fmt::format("{} ranks would cut blocks of {} weights of {}, which base=nf4 keeps "
                    "together: each has {} of its {}",
                    ranks, kNf4Block, weight.name, together, by_columns ? "columns" : "elements"),
        "leave out base=nf4, or give a smaller tp");
  }
  const std::int64_t group = std::gcd(kNf4Group, together / kNf4Block);
  if (!by_columns) return {{blocks}, {blocks / group}, group};
  const std::int64_t of_row = shape[1] / kNf4Block;
  return {{shape[0], of_row}, {shape[0], of_row / group}, group};
}

// True if the whole matrix, of which each of `ranks` may have a part, consists of whole blocks.
bool is_of_blocks(const Value& leaf, int ranks) {
  const auto axis = ranks > 1 ? split_axis(leaf.name) : std::nullopt;
  Shape whole = leaf.type.shape;
  if (axis) whole[*axis] *= ranks;
  return whole.product() % kNf4Block == 0 && whole[1] % 2 == 0;
}

// Returns, by value, whether it is a layer's frozen matrix that only products read, on the right.
std::vector<bool> kept_in_codes(const Program& program, const std::set<std::string>& kept,
                                int ranks) {
  std::vector<bool> out(program.values.size(), false);
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    out[at(id)] = leaf.leaf == LeafKind::kConstant && leaf.type.shape.rank() == 2 &&
                  is_floating(leaf.type.dtype) && is_of_blocks(leaf, ranks) &&
                  !layer_of(leaf.name).empty() && !kept.contains(leaf.name);
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
  return keep_nf4_of_ranks(program, kept, 1);
}

Program keep_nf4_of_ranks(const Program& program, const std::set<std::string>& kept, int ranks) {
  const std::vector<bool> chosen = kept_in_codes(program, kept, ranks);
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
    const Statistics of = statistics_of(weight, ranks);
    const auto constant = [&](std::string_view what, DType dtype, const Shape& shape) {
      return r.builder().leaf(LeafKind::kConstant, weight.name + std::string(what), {dtype, shape});
    };
    Attrs attrs{{"dtype", weight.type.dtype}, {"shape", weight.type.shape}};
    if (of.group != kNf4Group) attrs.set("group", of.group);
    return out = r.builder().call1("widen_nf4",
                                   {r.map(id), constant(kNf4Magnitudes, DType::kU8, of.magnitudes),
                                    constant(kNf4Scales, DType::kF32, of.scales),
                                    constant(kNf4Offset, DType::kF32, {1})},
                                   std::move(attrs));
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

bool keeps_nf4(const PassOptions& o) {
  return o.adapts() && o.run.lora.is_on() && o.run.lora.base == BaseWeights::kNf4;
}

Program keep_nf4(const Program& p, const PassOptions& o) {
  return keep_nf4_of_ranks(p, o.own_constants(), o.splits() ? o.run.parallel.tensor : 1);
}

}  // namespace tracestep

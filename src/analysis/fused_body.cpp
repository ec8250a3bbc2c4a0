#include "analysis/fused_body.h"

#include <algorithm>
#include <set>

#include "base/indexed.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

// True for an op on rows that has a decomposition, whose ops can be placed in a walk one by one.
bool has_parts(const OpDef& op) {
  return op.fusion == Fusion::kRows && op.decompose;
}

std::vector<bool> live_nodes(const Program& body) {
  std::vector<bool> read(body.values.size(), false), live(body.nodes.size(), false);
  for (const Output& o : body.outputs) read[at(o.value)] = true;
  for (std::size_t i = body.nodes.size(); i-- > 0;) {
    const Node& node = body.nodes[i];
    live[i] = std::ranges::any_of(node.outputs, [&](ValueId id) { return read[at(id)]; });
    if (!live[i]) continue;
    for (ValueId id : node.inputs) read[at(id)] = true;
  }
  return live;
}

// Decomposes ops on rows by one level, which sets `changed`; removes identities and dead code.
Program expanded(const Program& body, bool& changed) {
  const std::vector<bool> live = live_nodes(body);
  Rewriter r(body, "fuse");
  for (std::size_t i = 0; i < body.nodes.size(); ++i) {
    const Node& node = body.nodes[i];
    if (!live[i]) continue;
    const std::vector<Val> inputs = r.inputs(node);
    const OpExpansion call{r.builder(), node.attrs, inputs, {}, {}, {}};
    if (has_parts(*node.op)) {
      changed = true;
      const auto guard = r.from(node);
      r.replace(node, node.op->decompose(call));
    } else if (const Val same = node.op->identity ? node.op->identity(call) : Val{}) {
      r.replace(node, {same});
    } else {
      r.copy(node);
    }
  }
  return r.finish();
}

Program in_parts(const Program& body) {
  bool changed = false;
  Program out = expanded(body, changed);
  while (changed) {
    changed = false;
    out = expanded(out, changed);
  }
  return out;
}

bool is_computed(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kBool;
}

// True if the node computes with bools as numbers: in fused kernels they can only be conditions.
bool computes_with_bools(const Program& body, const Node& node) {
  const auto is_bool = [&](ValueId id) { return body.type(id).dtype == DType::kBool; };
  return node.op->precision_class != PrecisionClass::kKeep && !node.inputs.empty() &&
         std::ranges::all_of(node.inputs, is_bool);
}

bool may_fuse(const Program& body, const Node& node) {
  const bool known = node.op->is_view() || node.op->fusion != Fusion::kNone || is_constant(node);
  return known && (node.op->is_view() || !computes_with_bools(body, node));
}

void find_pair_tables(FusedBody& out) {
  std::set<ValueId> tables;
  for (const Node& node : out.program.nodes) {
    if (node.op->fusion == Fusion::kPairs) {
      tables.insert(node.inputs.begin() + 1, node.inputs.end());
    }
  }
  for (ValueId id : out.program.leaves) out.per_pair.push_back(tables.contains(id));
}

bool find_cuts(FusedBody& out) {
  std::set<std::int64_t> cuts{1, out.count};
  if (out.width != 0) cuts.insert(out.width);
  if (out.half != 0) cuts.insert(2 * out.half);
  const auto add = [&](ValueId id, bool per_pair) {
    const Shape& shape = out.program.type(id).shape;
    const Strides& place = out.place(id);
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) continue;
      if (!(per_pair && i + 1 == shape.rank())) cuts.insert(place[i]);
      cuts.insert(place[i] * shape[i]);
    }
  };
  for (std::size_t i = 0; i < out.program.leaves.size(); ++i) {
    const ValueId id = out.program.leaves[i];
    if (out.places[at(id)]) add(id, out.per_pair[i]);
  }
  for (const Output& o : out.program.outputs) add(o.value, false);
  out.cuts.assign(cuts.begin(), cuts.end());
  for (std::size_t i = 0; i + 1 < out.cuts.size(); ++i) {
    if (out.cuts[i + 1] % out.cuts[i] != 0) return false;
  }
  return out.cuts.back() == out.count;
}

// True if a node reads a sum over the rows of a block, which is complete only after all of these.
bool reads_sums_of_blocks(const FusedBody& out) {
  return std::ranges::any_of(out.program.nodes, [&](const Node& node) {
    return !node.op->is_view() &&
           std::ranges::any_of(node.inputs, [&](ValueId id) { return out.is_per_block(id); });
  });
}

// True if every element of the output is written exactly once: it has one element per point, per
// row, or per column and block.
bool covers_the_walk(const FusedBody& out, ValueId id) {
  const Shape& shape = out.program.type(id).shape;
  if (!out.places[at(id)]) return false;
  const std::int64_t points = out.is_per_block(id) ? out.count / out.rows_per_block
                              : out.is_per_row(id) ? out.count / out.width
                                                   : out.count;
  if (shape.product() != points) return false;
  const Strides& place = out.place(id);
  for (int i = 0; i < shape.rank(); ++i) {
    for (int j = 0; j < shape.rank(); ++j) {
      const bool apart = place[j] >= place[i] * shape[i] || place[i] >= place[j] * shape[j];
      if (i != j && shape[i] > 1 && shape[j] > 1 && !apart) return false;
    }
  }
  return true;
}

}  // namespace

bool FusedBody::is_per_row(ValueId id) const {
  if (width == 0) return false;
  const Shape& shape = program.type(id).shape;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] > 1 && place(id)[i] < width) return false;
  }
  return true;
}

bool FusedBody::is_per_block(ValueId id) const {
  const NodeId maker = program.value(id).producer;
  if (rows_per_block == 0 || maker == kNoNode) return false;
  const Node& node = program.node(maker);
  if (node.op->is_view()) return is_per_block(node.inputs[0]);
  return node.op->fusion == Fusion::kRows && program.type(id).count() == count / rows_per_block &&
         !is_per_row(id);
}

bool FusedBody::reduces_rows() const {
  return std::ranges::any_of(program.nodes, [&](const Node& node) {
    return node.op->fusion == Fusion::kRows && !is_per_block(node.outputs[0]);
  });
}

std::int64_t FusedBody::step(ValueId id, const Strides& strides, std::int64_t cut) const {
  const Shape& shape = program.type(id).shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t begin = place(id)[i];
    if (shape[i] > 1 && begin <= cut && cut < begin * shape[i]) return strides[i] * (cut / begin);
  }
  return 0;
}

std::optional<FusedBody> find_walk(const Program& body) {
  FusedBody out;
  out.program = in_parts(body);
  const Program& p = out.program;
  for (const Value& v : p.values) {
    if (!is_computed(v.type.dtype) || v.type.count() == 0) return std::nullopt;
  }
  for (const Node& node : p.nodes) {
    if (!may_fuse(p, node)) return std::nullopt;
  }
  if (!place_values(out)) return std::nullopt;
  for (const Node& node : p.nodes) {
    const bool known = std::ranges::all_of(node.outputs, [&](ValueId id) {
      return out.places[at(id)].has_value() || is_constant(node);
    });
    if (!known) return std::nullopt;
  }
  if (reads_sums_of_blocks(out)) return std::nullopt;
  find_pair_tables(out);
  if (out.width > kMostFusedWidth || (out.has_pairs && out.width % 2 != 0)) return std::nullopt;
  for (const Output& o : p.outputs) {
    if (!covers_the_walk(out, o.value)) return std::nullopt;
  }
  if (!find_cuts(out) || (out.has_pairs && out.cuts[1] % 2 != 0)) return std::nullopt;
  if (out.half != 0 && out.cuts[1] != 2 * out.half) return std::nullopt;
  return out;
}

}  // namespace tracestep

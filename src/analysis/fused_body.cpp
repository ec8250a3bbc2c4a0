#include "analysis/fused_body.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// --- the body in parts --------------------------------------------------------------------------
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

// Decomposes ops on rows by one level, then removes identities and dead code.
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

bool is_constant(const Node& node) {
  return node.op->kernel_class == KernelClass::kGenerator && node.attrs.find("value") != nullptr;
}

// Fused kernels take bools as conditions only, not as numbers.
bool computes_with_bools(const Program& body, const Node& node) {
  const auto is_bool = [&](ValueId id) { return body.type(id).dtype == DType::kBool; };
  return node.op->precision_class != PrecisionClass::kKeep && !node.inputs.empty() &&
         std::ranges::all_of(node.inputs, is_bool);
}

bool may_fuse(const Program& body, const Node& node) {
  const bool known = node.op->is_view() || node.op->fusion != Fusion::kNone || is_constant(node);
  return known && (node.op->is_view() || !computes_with_bools(body, node));
}

// --- views --------------------------------------------------------------------------------------
// The dimensions of a view over a common run of elements; `steps`: distance between neighbours.
struct Dimensions {
  const Shape& sizes;
  const Strides& steps;
};

// Derives the places of `to` from those of `from`, two views of one run of elements. nullopt: a
// dimension of `to` is not in `from`, or it has no single step in the walk.
std::optional<Strides> carry(const Dimensions& from, const Strides& places, const Dimensions& to) {
  Strides out = Dims::filled(to.sizes.rank(), 0);
  for (int k = 0; k < to.sizes.rank(); ++k) {
    const std::int64_t step = to.steps[k];
    if (to.sizes[k] == 1) continue;
    for (int i = 0; i < from.sizes.rank(); ++i) {
      const std::int64_t other = from.steps[i];
      if (from.sizes[i] == 1 || other == 0 || other > step) continue;
      if (step < other * from.sizes[i] && step % other == 0) out[k] = places[i] * (step / other);
    }
    if (step == 0 || out[k] == 0) return std::nullopt;
    for (int i = 0; i < from.sizes.rank(); ++i) {
      const std::int64_t other = from.steps[i];
      if (from.sizes[i] == 1 || other < step || other >= step * to.sizes[k]) continue;
      if (other % step != 0 || places[i] != out[k] * (other / step)) return std::nullopt;
    }
  }
  return out;
}

// Strides of the view over its operand's elements; nullopt: the view skips some of them.
std::optional<Strides> steps_of_view(const Program& body, const Node& node) {
  const Type& from = body.type(node.inputs[0]);
  const std::vector<Type> types{from}, results{body.type(node.outputs[0])};
  const auto layout = node.op->view({*node.op, node.attrs, types, results},
                                    {kNoValue, 0, contiguous_strides(from.shape)});
  if (!layout || layout->offset != 0) return std::nullopt;
  std::int64_t reached = 1;
  for (int i = 0; i < results[0].shape.rank(); ++i) {
    if (layout->strides[i] != 0) reached *= results[0].shape[i];
  }
  if (reached != from.count()) return std::nullopt;
  return layout->strides;
}

// --- places -------------------------------------------------------------------------------------
class Placer {
 public:
  explicit Placer(FusedBody& out) : out_(out), body_(out.program) {
    out_.places.assign(body_.values.size(), std::nullopt);
  }

  bool run() {
    for (ValueId anchor = next_anchor(); anchor != kNoValue; anchor = next_anchor()) {
      const Type& type = body_.type(anchor);
      if (out_.count == 0) out_.count = type.count();
      if (type.count() != out_.count || !put(anchor, contiguous_strides(type.shape))) return false;
      if (!spread()) return false;
    }
    return out_.count > 0;
  }

 private:
  bool placed(ValueId id) const { return out_.places[at(id)].has_value(); }

  // The value that decides the order of the walk: a reduced operand, else an operand of pairs, else
  // the largest result without a place.
  ValueId next_anchor() const {
    ValueId found = kNoValue;
    int best = 0;
    for (const Node& node : body_.nodes) {
      if (node.op->is_view() || is_constant(node)) continue;
      const int rank = node.op->fusion == Fusion::kRows    ? 3
                       : node.op->fusion == Fusion::kPairs ? 2
                                                           : 1;
      const ValueId id = rank > 1 ? node.inputs[0] : node.outputs[0];
      if (placed(id) || rank < best) continue;
      if (rank == best && body_.type(id).count() <= body_.type(found).count()) continue;
      found = id;
      best = rank;
    }
    return found;
  }

  bool put(ValueId id, Strides place) {
    const Shape& shape = body_.type(id).shape;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) place[i] = 0;
    }
    if (placed(id)) return out_.place(id) == place;
    out_.places[at(id)] = place;
    changed_ = true;
    return true;
  }

  bool spread() {
    do {
      changed_ = false;
      for (const Node& node : body_.nodes) {
        if (!spread_over(node)) return false;
      }
    } while (changed_);
    return true;
  }

  bool spread_over(const Node& node) {
    if (node.op->is_view()) return over_view(node);
    switch (node.op->fusion) {
      case Fusion::kRows: return over_reduction(node);
      case Fusion::kPairs: return over_pairs(node);
      default: return over_equals(node);
    }
  }

  bool over_view(const Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const auto steps = steps_of_view(body_, node);
    if (!steps) return false;
    const Shape &x_shape = body_.type(x).shape, &y_shape = body_.type(y).shape;
    const Strides dense = contiguous_strides(x_shape);
    if (placed(y)) {
      const auto place = carry({y_shape, *steps}, out_.place(y), {x_shape, dense});
      return place && put(x, *place);
    }
    if (!placed(x)) return true;
    // The place of a broadcast operand follows from its readers only.
    const auto place = carry({x_shape, dense}, out_.place(x), {y_shape, *steps});
    return !place || put(y, *place);
  }

  bool over_equals(const Node& node) {
    std::vector<ValueId> all = node.inputs;
    all.insert(all.end(), node.outputs.begin(), node.outputs.end());
    const auto known = std::ranges::find_if(all, [&](ValueId id) { return placed(id); });
    if (known == all.end()) return true;
    const Strides place = out_.place(*known);
    return std::ranges::all_of(all, [&](ValueId id) { return put(id, place); });
  }

  bool over_reduction(const Node& node) {
    const Shape& shape = body_.type(node.inputs[0]).shape;
    const Dims& axes = node.attrs.ints("axes");
    const int last = shape.rank() - 1;
    if (axes.rank() != 1 || last < 0 || shape[last] < 2) return false;
    if (out_.width != 0 && out_.width != shape[last]) return false;
    out_.width = shape[last];
    const std::int64_t axis = (axes[0] + shape.rank()) % shape.rank();
    if (axis == last) return over_row(node);
    return axis == last - 1 && shape.rank() > 2 && over_block(node);
  }

  // A sum over neighbouring rows: [..., R, W] over R.
  bool over_block(const Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const Shape& shape = body_.type(x).shape;
    const int last = shape.rank() - 1;
    const std::int64_t rows = shape[last - 1];
    if (rows < 2 || rows > kMostRowsPerBlock || node.op->name != "sum") return false;
    if (out_.rows_per_block != 0 && out_.rows_per_block != rows) return false;
    out_.rows_per_block = rows;
    if (!placed(x)) return true;
    Strides place = out_.place(x);
    if (place[last] != 1 || place[last - 1] != shape[last]) return false;
    if (body_.type(y).shape.rank() == shape.rank()) {
      place[last - 1] = 0;
      return put(y, place);
    }
    Strides columns;
    for (int i = 0; i <= last; ++i) {
      if (i != last - 1) columns.push_back(place[i]);
    }
    return put(y, columns);
  }

  bool over_row(const Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const Shape& shape = body_.type(x).shape;
    const int last = shape.rank() - 1;
    const int kept = body_.type(y).shape.rank();
    if (!placed(x)) {
      if (!placed(y)) return true;
      Strides place = Dims::filled(shape.rank(), 1);
      for (int i = 0; i < last; ++i) place[i] = out_.place(y)[i];
      return put(x, place);
    }
    if (out_.place(x)[last] != 1) return false;
    Strides place = Dims::filled(kept, 0);
    for (int i = 0; i < last; ++i) place[i] = out_.place(x)[i];
    return put(y, place);
  }

  bool over_pairs(const Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    out_.has_pairs = true;
    if (!placed(x) && !placed(y)) return true;
    const Strides place = placed(x) ? out_.place(x) : out_.place(y);
    if (!put(x, place) || !put(y, place) || place.back() != 1) return false;
    return std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](ValueId table) {
      const bool is_leaf = body_.value(table).leaf != LeafKind::kNone;
      return is_leaf && put(table, {place.back(1), 2});
    });
  }

  FusedBody& out_;
  const Program& body_;
  bool changed_ = false;
};

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

// A sum over the rows of a block is complete only at the end: no node of the body may read it.
bool reads_sums_of_blocks(const FusedBody& out) {
  return std::ranges::any_of(out.program.nodes, [&](const Node& node) {
    return !node.op->is_view() &&
           std::ranges::any_of(node.inputs, [&](ValueId id) { return out.is_per_block(id); });
  });
}

// Whether every element of an output is written exactly once: one per point, or one per row.
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
  if (!Placer(out).run()) return std::nullopt;
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
  return out;
}

}  // namespace tracestep

#include "analysis/fused_body.h"

#include <algorithm>

#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

// Returns the strides of the view in a dense operand's elements. nullopt: the view skips some of
// the operand's elements.
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

// Finds each value's strides in the fused loop (the walk), first for those that decide its order.
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

  // Returns the next value to decide the order of the walk: a reduced operand, else an operand
  // of pairs, else the largest result, each without a place yet; kNoValue: none is left.
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
      const auto place = carry_strides({y_shape, *steps}, out_.place(y), {x_shape, dense});
      return place && put(x, *place);
    }
    if (!placed(x)) return true;
    // The place of a broadcast operand follows from its readers only.
    const auto place = carry_strides({x_shape, dense}, out_.place(x), {y_shape, *steps});
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

  // Places a sum over neighbouring rows, [..., R, W] over R. False if the walk has no place for it.
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
    const std::int64_t half = node.attrs.flag("halves") ? body_.type(x).shape.back() / 2 : 0;
    if (out_.has_pairs && out_.half != half) return false;
    out_.has_pairs = true;
    out_.half = half;
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

}  // namespace

bool is_constant(const Node& node) {
  return node.op->kernel_class == KernelClass::kGenerator && node.attrs.find("value") != nullptr;
}

bool place_values(FusedBody& body) {
  return Placer(body).run();
}

}  // namespace tracestep

// Lets readers in backward use narrow values in place of their widened copies.
#include <algorithm>
#include <optional>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/shared_attrs.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

bool run_together(const Node& a, const Node& b) {
  return a.origin().phase == b.origin().phase && a.epoch == b.epoch;
}

// A value, and the views that lead from it to a reader, the first one first.
struct Viewed {
  ValueId value = kNoValue;
  std::vector<NodeId> views = {};
};

class Narrow {
 public:
  explicit Narrow(const Program& program)
      : program_(program), readers_(program), r_(program, "narrow") {}

  Program run() {
    for (const Node& node : program_.nodes) emit(node);
    return remove_dead_nodes(r_.finish());
  }

 private:
  DType dtype(ValueId id) const { return program_.type(id).dtype; }

  bool narrows(const Node& node) const {
    return node.op->only_converts && is_low_precision(dtype(node.outputs[0])) &&
           program_.value(node.outputs[0]).role == Role::kNone;
  }
  bool widens(const Node& node) const {
    return node.op->only_converts && is_low_precision(dtype(node.inputs[0])) &&
           dtype(node.outputs[0]) == DType::kF32;
  }
  bool sums_a_bias(const Node& node) const {
    return node.origin().phase == Phase::kBackward &&
           node.op->find_attr(ops::kWideSum) != nullptr && dtype(node.inputs[0]) == DType::kF32 &&
           sums_columns(program_, node);
  }

  // True for a sum (a bias's gradient) that would be rounded to its dtype and then widened again.
  bool sums_a_narrow_bias(const Node& node) const {
    const auto widened = [&](NodeId id) {
      const Node& reader = program_.node(id);
      return reader.op->widens || widens(reader);
    };
    return node.origin().phase == Phase::kBackward &&
           node.op->find_attr(ops::kWideSum) != nullptr && !node.attrs.flag(ops::kWideSum) &&
           is_low_precision(dtype(node.inputs[0])) && sums_columns(program_, node) &&
           !readers_.at_end[at(node.outputs[0])] &&
           std::ranges::all_of(readers_.nodes[at(node.outputs[0])], widened);
  }

  void emit(const Node& node) {
    if (r_.has(node.outputs[0])) return;  // a cast that a sum reads
    if (widens(node) && r_.map(node.inputs[0]).dtype() == DType::kF32) {
      return r_.replace(node, {r_.map(node.inputs[0])});  // of a sum that is not rounded
    }
    if (narrows(node)) {
      const auto before = before_widening(node);
      if (before && dtype(before->value) == dtype(node.outputs[0])) {
        r_.replace(node, {emit_views(r_.map(before->value), *before)});
        return;
      }
      if (const auto source = before_views(node)) return emit_cast(node, *source);
    } else if (sums_a_bias(node)) {
      if (const Val x = narrow_operand(node)) return emit_sum(node, x);
    } else if (sums_a_narrow_bias(node)) {
      return emit_sum(node, r_.map(node.inputs[0]));
    }
    r_.copy(node);
  }

  // Returns the value from which a cast and views make the node's operand, with these views;
  // nullopt: no cast widened it, or one of another phase, where a read would change what is saved.
  std::optional<Viewed> before_widening(const Node& node) const {
    Viewed out;
    for (ValueId id = node.inputs[0]; program_.value(id).producer != kNoNode;) {
      const NodeId maker = program_.value(id).producer;
      const Node& made_by = program_.node(maker);
      if (!run_together(made_by, node)) return std::nullopt;
      if (!made_by.op->is_view()) {
        if (!widens(made_by)) return std::nullopt;
        out.value = made_by.inputs[0];
        return out;
      }
      if (made_by.inputs.size() != 1) return std::nullopt;
      out.views.insert(out.views.begin(), maker);
      id = made_by.inputs[0];
    }
    return std::nullopt;
  }

  // Returns the value that views reorder into the operand of a cast in backward, with these views;
  // nullopt: they keep the order, or have readers other than bias sums, which can read the cast.
  std::optional<Viewed> before_views(const Node& cast) const {
    if (cast.origin().phase != Phase::kBackward) return std::nullopt;
    Viewed out{cast.inputs[0]};
    bool is_in_order = true;
    for (NodeId maker = program_.value(out.value).producer; maker != kNoNode;
         maker = program_.value(out.value).producer) {
      const Node& view = program_.node(maker);
      if (!run_together(view, cast)) return std::nullopt;
      if (!view.op->is_view()) break;
      const bool has_all = view.inputs.size() == 1 && program_.type(view.inputs[0]).count() ==
                                                          program_.type(view.outputs[0]).count();
      if (!has_all || !is_read_for(out.value, cast)) return std::nullopt;
      is_in_order = is_in_order && keeps_order(program_, view);
      out.views.insert(out.views.begin(), maker);
      out.value = view.inputs[0];
    }
    if (is_in_order || readers_.only(out.value) == kNoNode) return std::nullopt;
    return out;
  }

  // True if only the next view reads the value; of the cast's operand: only the cast and bias sums.
  bool is_read_for(ValueId id, const Node& cast) const {
    if (id != cast.inputs[0]) return readers_.only(id) != kNoNode;
    return !readers_.at_end[at(id)] && std::ranges::all_of(readers_.nodes[at(id)], [&](NodeId r) {
      const Node& reader = program_.node(r);
      return &reader == &cast || (sums_a_bias(reader) && run_together(reader, cast));
    });
  }

  // Emits the cast before the views, which then move fewer bytes.
  void emit_cast(const Node& cast, const Viewed& source) {
    Val x = r_.map(source.value);
    {
      const auto guard = r_.from(cast);
      x = r_.builder().call(*cast.op, {x}, cast.attrs).front();
    }
    r_.replace(cast, {emit_views(x, source)});
  }

  // Applies the views of `from` to `x`; a view and its inverse cancel.
  Val emit_views(Val x, const Viewed& from) {
    for (NodeId id : from.views) {
      const Node& view = program_.node(id);
      const auto guard = r_.from(view);
      const std::vector<Val> operands{x};
      const Val same = view.op->identity
                           ? view.op->identity({r_.builder(), view.attrs, operands, {}, {}, {}})
                           : Val{};
      x = same ? same : r_.builder().call(*view.op, operands, view.attrs).front();
    }
    return x;
  }

  // Returns the narrow copy of the sum's operand that products read, or else the narrow value that
  // was widened to the operand; "no value": there is neither.
  Val narrow_operand(const Node& sum) {
    for (NodeId id : readers_.nodes[at(sum.inputs[0])]) {
      const Node& reader = program_.node(id);
      if (!narrows(reader) || !run_together(reader, sum)) continue;
      emit(reader);
      return r_.map(reader.outputs[0]);
    }
    const auto before = before_widening(sum);
    return before ? emit_views(r_.map(before->value), *before) : Val{};
  }

  void emit_sum(const Node& sum, Val x) {
    const auto guard = r_.from(sum);
    Attrs attrs = sum.attrs;
    attrs.set(ops::kWideSum, true);
    const Val y = r_.builder().call(*sum.op, {x}, attrs).front();
    r_.builder().set_role(y, program_.value(sum.outputs[0]).role);
    r_.replace(sum, {y});
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
};

}  // namespace

Program narrow(const Program& program) {
  return Narrow(program).run();
}

bool narrows_gradients(const PassOptions& o) {
  return o.casts() && o.differentiates();
}

}  // namespace tracestep

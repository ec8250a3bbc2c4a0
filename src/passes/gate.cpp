#include <algorithm>
#include <map>
#include <optional>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// A product [T, 2F], and the SwiGLU node that reads the two halves of its result.
struct Forward {
  NodeId product = kNoNode, gating = kNoNode;
};

// A product [T, F], the gradients of SwiGLU that read it, and the node that joins these gradients.
struct Backward {
  NodeId product = kNoNode, gating = kNoNode, meeting = kNoNode;
  ValueId gate_up = kNoValue;
};

class Gate {
 public:
  Gate(const Program& program, const std::function<bool(const GatedProductSizes&)>& pays)
      : program_(program), pays_(pays), readers_(program), r_(program, "gate") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto found = forward_of(id)) forward_[found->product] = *found;
      if (const auto found = backward_of(id)) backward_[found->gating] = *found;
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto made = made_.find(id); made != made_.end()) {
        r_.replace(node(id), {made->second});
      } else if (const auto f = forward_.find(id); f != forward_.end()) {
        emit(f->second);
      } else {
        r_.copy(node(id));
      }
      if (const auto b = backward_.find(id); b != backward_.end()) emit(b->second);
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  const Type& type(ValueId id) const { return program_.type(id); }

  // True if the node is a product of two dense 16-bit matrices.
  bool is_product(NodeId id, bool transpose_b) const {
    if (id == kNoNode) return false;
    const Node& n = node(id);
    return n.op->name == "matmul" && !n.attrs.flag("transpose_a") &&
           n.attrs.flag("transpose_b") == transpose_b && !n.attrs.flag("by_parts") &&
           is_low_precision(type(n.outputs[0]).dtype) && type(n.outputs[0]).shape.rank() == 2 &&
           std::ranges::all_of(n.inputs, [&](ValueId x) { return is_dense(x); });
  }
  bool is_dense(ValueId id) const {
    return is_contiguous(type(id).shape, program_.value(id).layout.strides);
  }

  // Returns the value of which `id` is a reshape, through several if need be, or `id` itself.
  ValueId behind_views(ValueId id) const {
    for (NodeId maker = program_.value(id).producer; maker != kNoNode;
         maker = program_.value(id).producer) {
      if (!node(maker).op->is_view() || !keeps_order(program_, node(maker))) break;
      id = node(maker).inputs[0];
    }
    return id;
  }
  // Returns the result of the last reshape in the chain of single readers after `id`, or `id`.
  ValueId before_views(ValueId id) const {
    for (NodeId next = readers_.only(id); next != kNoNode; next = readers_.only(id)) {
      if (!node(next).op->is_view() || !keeps_order(program_, node(next))) break;
      id = node(next).outputs[0];
    }
    return id;
  }

  // Returns the matrix [T, 2F] of which `gate` and `up` are, reshaped, the first and the second
  // half of the columns; kNoValue: there is none.
  ValueId whole_of(ValueId gate, ValueId up) const {
    ValueId whole = kNoValue;
    const ValueId halves[] = {behind_views(gate), behind_views(up)};
    for (std::int64_t i = 0; i < 2; ++i) {
      const NodeId maker = program_.value(halves[i]).producer;
      if (maker == kNoNode || node(maker).op->name != "slice") return kNoValue;
      const Node& slice = node(maker);
      const Shape& shape = type(slice.inputs[0]).shape;
      if (shape.rank() != 2 || slice.attrs.integer("axis") != 1 || shape[1] % 2 != 0 ||
          slice.attrs.integer("start") != i * shape[1] / 2 ||
          slice.attrs.integer("stop") != (i + 1) * shape[1] / 2 ||
          (i == 1 && slice.inputs[0] != whole)) {
        return kNoValue;
      }
      whole = slice.inputs[0];
    }
    return whole;
  }

  // Returns `gating` and its product, if it is the product's first SwiGLU: a recomputed one is not.
  std::optional<Forward> forward_of(NodeId gating) const {
    const Node& n = node(gating);
    if (n.op->name != "swiglu") return std::nullopt;
    const ValueId gate_up = whole_of(n.inputs[0], n.inputs[1]);
    if (gate_up == kNoValue) return std::nullopt;
    const NodeId product = program_.value(gate_up).producer;
    if (!is_product(product, true) || forward_.contains(product)) return std::nullopt;
    const Shape& x = type(node(product).inputs[0]).shape;
    if (!pays_({x[0], x[1], type(gate_up).shape[1] / 2})) return std::nullopt;
    return Forward{product, gating};
  }

  std::optional<Backward> backward_of(NodeId gating) const {
    const Node& n = node(gating);
    if (n.op->name != "swiglu_grad") return std::nullopt;
    Backward out{.gating = gating};
    const ValueId dh = behind_views(n.inputs[0]);
    out.product = program_.value(dh).producer;
    out.gate_up = whole_of(n.inputs[1], n.inputs[2]);
    if (!is_product(out.product, false) || out.gate_up == kNoValue || !is_dense(out.gate_up) ||
        readers_.only(before_views(dh)) != gating ||
        !can_wait(program_, node(out.product), gating)) {
      return std::nullopt;
    }
    const ValueId d_gate = before_views(n.outputs[0]), d_up = before_views(n.outputs[1]);
    out.meeting = readers_.only(d_gate);
    if (out.meeting == kNoNode || readers_.only(d_up) != out.meeting) return std::nullopt;
    const Node& meeting = node(out.meeting);
    if (meeting.op->name != "assemble" || meeting.attrs.integer("axis") != 1 ||
        meeting.inputs != std::vector<ValueId>{d_gate, d_up} ||
        type(meeting.outputs[0]) != type(out.gate_up)) {
      return std::nullopt;
    }
    const Shape& dy = type(node(out.product).inputs[0]).shape;
    if (!pays_({dy[0], dy[1], type(dh).shape[1]})) return std::nullopt;
    return out;
  }

  // True if SwiGLU alone reads the product's result, as in a program without backward.
  bool is_for_gating(const Forward& f) const {
    const auto gate_up = static_cast<std::size_t>(node(f.product).outputs[0]);
    const std::vector<NodeId>& halves = readers_.nodes[gate_up];
    return !readers_.at_end[gate_up] && halves.size() == 2 &&
           std::ranges::all_of(halves, [&](NodeId half) {
             return readers_.only(before_views(node(half).outputs[0])) == f.gating;
           });
  }

  void emit(const Forward& f) {
    const Node& product = node(f.product);
    const auto guard = r_.from(product);
    Attrs attrs;
    if (is_for_gating(f)) attrs.set("unread", AttrValue(true));
    const std::vector<Val> made =
        r_.builder().call(find_op("matmul_swiglu"), r_.inputs(product), attrs);
    r_.replace(product, {made[0]});
    made_[f.gating] = ops::reshape(made[1], type(node(f.gating).outputs[0]).shape);
  }

  // Emits the product and SwiGLU's gradients as one node in these gradients' place, after gates.
  void emit(const Backward& b) {
    const Node& product = node(b.product);
    const auto guard = r_.from(product);
    std::vector<Val> operands = r_.inputs(product);
    operands.push_back(r_.map(b.gate_up));
    made_[b.meeting] = r_.builder().call1("matmul_swiglu_grad", operands);
  }

  const Program& program_;
  const std::function<bool(const GatedProductSizes&)>& pays_;
  const Readers readers_;
  Rewriter r_;
  std::map<NodeId, Forward> forward_;    // by the product
  std::map<NodeId, Backward> backward_;  // by the gradients of SwiGLU
  std::map<NodeId, Val> made_;           // what stands for the result of a node
};

}  // namespace

Program gate(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
             const std::function<bool(const GatedProductSizes&)>& pays) {
  const bool has_both =
      has_kernel(find_op("matmul_swiglu")) && has_kernel(find_op("matmul_swiglu_grad"));
  return has_both ? Gate(program, pays).run() : program;
}

Program gate(const Program& p, const PassOptions& o) {
  return gate(
      p, [&](const OpDef& op) { return o.has_kernel(op); }, gated_product_pays);
}

}  // namespace tracestep

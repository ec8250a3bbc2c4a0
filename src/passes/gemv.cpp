#include "ops/gemv.h"

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

const char* const kActivations[] = {"silu", "gelu", "gelu_erf", "relu"};

// A product of one row and the neighbouring ops that one gemv computes too: norm, gate, bias, sum.
struct Call {
  NodeId product = kNoNode, last = kNoNode;  // `last` makes what the call stands for
  ValueId x = kNoValue, scale = kNoValue, shift = kNoValue, bias = kNoValue, c = kNoValue;
  Attrs attrs = {};
};

class ProductsOfRows {
 public:
  explicit ProductsOfRows(const Program& program)
      : program_(program), readers_(program), r_(program, "gemv") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (is_of_one_row(id)) add(id);
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto found = calls_.find(static_cast<NodeId>(i));
      found == calls_.end() ? void(r_.copy(program_.nodes[i])) : emit(found->second);
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  const Type& type(ValueId id) const { return program_.type(id); }

  bool is_of_one_row(NodeId id) const {
    const Node& n = node(id);
    const bool has_bias = n.op->name == "matmul_bias";
    if (!(n.op->name == "matmul" || has_bias) || n.attrs.flag("transpose_a") ||
        !n.attrs.flag("transpose_b")) {
      return false;
    }
    const Type &x = type(n.inputs[0]), &w = type(n.inputs[1]);
    if (has_bias && !is_vector(n.inputs[2], w.shape[0], x.dtype)) return false;
    const std::int64_t k = x.shape.back();
    return x.count() == k && k > 0 && k % kGemvWord == 0 && x.bytes() <= kMostGemvBytes &&
           w.shape.rank() == 2 && w.count() > 0 && x.dtype != DType::kF64 &&
           is_dense(n.inputs[0]) && is_dense(n.inputs[1]) && stays(n.inputs[1]);
  }

  bool is_dense(ValueId id) const {
    return is_contiguous(type(id).shape, program_.value(id).layout.strides);
  }
  // True if `id` is computed from parameters and constants alone, and none of them is updated.
  bool stays(ValueId id) const {
    const std::vector<ValueId> leaves = leaves_of(program_, id);
    return !leaves.empty() && can_wait(id) && std::ranges::all_of(leaves, [&](ValueId leaf) {
      const LeafKind kind = program_.value(leaf).leaf;
      return kind == LeafKind::kParameter || kind == LeafKind::kConstant;
    });
  }
  // True if `id` may be read at a later place: no leaf from which it is computed is updated.
  bool can_wait(ValueId id) const {
    return std::ranges::none_of(leaves_of(program_, id), [&](ValueId leaf) {
      return std::ranges::find(program_.updates, leaf, &Update::leaf) != program_.updates.end();
    });
  }
  // True for a dense vector of `count` elements of `dtype`, made of weights that are not updated.
  bool is_vector(ValueId id, std::int64_t count, DType dtype) const {
    return type(id).count() == count && type(id).dtype == dtype && is_dense(id) && stays(id);
  }

  // Returns the result of the last reshape in the chain of single readers after `id`, or `id`.
  ValueId behind_views(ValueId id) const {
    for (NodeId next = readers_.only(id); next != kNoNode; next = readers_.only(id)) {
      if (!node(next).op->is_view() || !keeps_order(program_, node(next))) break;
      id = node(next).outputs[0];
    }
    return id;
  }
  // Returns the operand of the sum that is not `id`.
  ValueId other_of(const Node& sum, ValueId id) const {
    return sum.inputs[0] == id ? sum.inputs[1] : sum.inputs[0];
  }
  static bool is_activation(const Node& n) {
    return std::ranges::find(kActivations, n.op->name) != std::end(kActivations);
  }

  void add(NodeId product) {
    Call call{.product = product, .last = product, .x = node(product).inputs[0]};
    call.attrs.set("early", true);
    take_norm(call);
    if (node(product).inputs.size() == 3) {
      biased(call, node(product).inputs[2]);
      take_activation_or_sum(call);
    } else if (!take_gate(call)) {
      take_sums(call);
    }
    calls_[call.last] = std::move(call);
  }

  // Adds to the call the norm that makes its row, if one does.
  void take_norm(Call& call) const {
    ValueId y = call.x;
    NodeId maker = program_.value(y).producer;
    while (maker != kNoNode && node(maker).op->is_view() && keeps_order(program_, node(maker))) {
      y = node(maker).inputs[0];
      maker = program_.value(y).producer;
    }
    if (maker == kNoNode || node(maker).outputs[0] != y) return;
    const Node& norm = node(maker);
    const bool is_layer = norm.op->name == "layer_norm";
    if (!is_layer && norm.op->name != "rms_norm") return;
    const ValueId x = norm.inputs[0];
    const std::int64_t k = type(x).shape.back();
    ValueId scale = norm.inputs[1];
    double offset = 0.0;
    const NodeId shifting = program_.value(scale).producer;
    if (shifting != kNoNode && node(shifting).op->name == "affine" &&
        node(shifting).attrs.real("scale") == 1.0) {
      offset = node(shifting).attrs.real("shift");
      scale = node(shifting).inputs[0];
    }
    const bool has_shift = norm.inputs.size() > 2;
    if (type(x).count() != k || !is_dense(x) || !can_wait(x) ||
        type(x).bytes() * (has_shift ? 3 : 2) > kMostGemvBytes ||
        !is_vector(scale, k, type(x).dtype) ||
        (has_shift && !is_vector(norm.inputs[2], k, type(x).dtype))) {
      return;
    }
    call.x = x;
    call.scale = scale;
    call.attrs.set("norm", std::string(is_layer ? "layer" : "rms"));
    call.attrs.set("eps", norm.attrs.real("eps"));
    call.attrs.set("offset", offset);
    if (!has_shift) return;
    call.shift = norm.inputs[2];
    call.attrs.set("shifted", true);
  }

  // Returns the first and second half of a product's result `y`; nullopt: something else reads `y`.
  std::optional<std::pair<ValueId, ValueId>> halves_of(ValueId y) const {
    const std::vector<NodeId>& nodes = readers_.nodes[static_cast<std::size_t>(y)];
    const std::int64_t half = type(y).count() / 2;
    if (nodes.size() != 2 || readers_.at_end[static_cast<std::size_t>(y)]) return std::nullopt;
    ValueId found[2] = {kNoValue, kNoValue};
    for (const NodeId id : nodes) {
      const Node& n = node(id);
      if (n.op->name != "slice" || type(n.outputs[0]).count() != half) return std::nullopt;
      found[n.attrs.integer("start") == 0 ? 0 : 1] = behind_views(n.outputs[0]);
    }
    if (found[0] == kNoValue || found[1] == kNoValue) return std::nullopt;
    return std::pair(found[0], found[1]);
  }

  bool take_gate(Call& call) const {
    const auto halves = halves_of(node(call.product).outputs[0]);
    if (!halves) return false;
    const NodeId reader = readers_.only(halves->first), other = readers_.only(halves->second);
    if (reader == kNoNode || other == kNoNode) return false;
    const Node& first = node(reader);
    if (reader == other && first.op->name == "swiglu" && first.inputs[0] == halves->first) {
      return gated(call, "silu", reader);
    }
    if (!is_activation(first)) return false;
    const ValueId activated = behind_views(first.outputs[0]);
    if (node(other).op->name != "mul" || readers_.only(activated) != other) return false;
    return gated(call, first.op->name, other);
  }
  static bool gated(Call& call, const std::string& activation, NodeId last) {
    call.attrs.set("gated", true);
    call.attrs.set("activation", activation);
    call.last = last;
    return true;
  }

  static void biased(Call& call, ValueId bias) {
    call.bias = bias;
    call.attrs.set("biased", true);
  }
  static bool is_sum(const Node& n) { return n.op->is_sum && n.inputs.size() == 2; }

  // Adds to the call the bias that is added to its product, then an activation or another sum.
  void take_sums(Call& call) const {
    const ValueId y = behind_views(node(call.product).outputs[0]);
    const NodeId reader = readers_.only(y);
    if (reader != kNoNode && is_sum(node(reader)) &&
        is_vector(other_of(node(reader), y), type(y).count(), type(y).dtype)) {
      biased(call, other_of(node(reader), y));
      call.last = reader;
    }
    take_activation_or_sum(call);
  }

  // Adds to the call the activation or sum that alone reads the result of `call.last`, if any.
  void take_activation_or_sum(Call& call) const {
    const ValueId y = behind_views(node(call.last).outputs[0]);
    const NodeId reader = readers_.only(y);
    if (reader == kNoNode) return;
    const Node& n = node(reader);
    if (is_activation(n)) {
      call.attrs.set("activation", n.op->name);
      call.last = reader;
      return;
    }
    const ValueId c = is_sum(n) ? other_of(n, y) : kNoValue;
    const bool is_added = c != kNoValue && c != y && type(c).count() == type(y).count() &&
                          type(c).dtype == type(y).dtype && is_dense(c);
    if (!is_added) return;
    call.c = c;
    call.attrs.set("added", true);
    call.last = reader;
  }

  void emit(const Call& call) {
    const auto guard = r_.from(node(call.product));
    const Val x = r_.map(call.x), w = r_.map(node(call.product).inputs[1]);
    std::vector<Val> operands{x, w};
    Shape y = x.shape();
    y[y.rank() - 1] = w.dim(0);
    const auto take = [&](ValueId id, const Shape& shape) {
      if (id != kNoValue) operands.push_back(ops::reshape(r_.map(id), shape));
    };
    take(call.scale, {x.dim(-1)});
    take(call.shift, {x.dim(-1)});
    take(call.bias, {w.dim(0)});
    take(call.c, y);
    const Val out = r_.builder().call(find_op("gemv"), operands, call.attrs).front();
    const ValueId made = node(call.last).outputs[0];
    r_.replace(node(call.last), {ops::reshape(out, type(made).shape)});
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
  std::map<NodeId, Call> calls_;  // by the last node
};

}  // namespace

Program gemv(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return has_kernel(find_op("gemv")) ? ProductsOfRows(program).run() : program;
}

bool decodes_rows(const PassOptions& o) {
  return !o.differentiates() && !o.updates() && has_arena(o.run.executor);
}

}  // namespace tracestep

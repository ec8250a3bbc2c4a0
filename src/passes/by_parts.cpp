// Marks float32 products to compute as products of float16 parts; joins pairs into one node.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/readers.h"
#include "ir/rewrite.h"
#include "passes/form_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

constexpr std::int64_t kLeastExtent = 128;

bool pays(const Program& program, const Node& node) {
  if (node.op->find_attr("by_parts") == nullptr || node.op->find_attr("transpose_a") == nullptr)
    return false;
  const bool has_factor = node.op->find_attr("beta") != nullptr && node.attrs.real("beta") != 1.0;
  if (has_factor) return false;
  const Type& a = program.type(node.inputs[0]);
  const Shape& y = program.type(node.outputs[0]).shape;
  const std::int64_t k = a.shape.back(node.attrs.flag("transpose_a") ? 1 : 0);
  return a.dtype == DType::kF32 && std::min({y.back(0), y.back(1), k}) >= kLeastExtent;
}

Program marked(const Program& program) {
  Program out = program;
  for (Node& node : out.nodes) {
    if (pays(program, node)) node.attrs.set("by_parts", true);
  }
  return out;
}

// The two products in backward of a linear layer: g·w, the gradient of x, and gᵀ·x, that of w.
struct Pair {
  NodeId of_x = kNoNode, of_w = kNoNode;

  NodeId first() const { return std::min(of_x, of_w); }
  NodeId second() const { return std::max(of_x, of_w); }
};

class Pairing {
 public:
  explicit Pairing(const Program& program)
      : program_(program),
        product_(find_op("matmul")),
        both_(find_op("linear_grad")),
        r_(program, "by_parts") {
    const Readers readers(program);
    for (std::size_t g = 0; g < readers.nodes.size(); ++g) {
      const Pair pair = pair_of(static_cast<ValueId>(g), readers.nodes[g]);
      if (pair.of_x != kNoNode && pair.of_w != kNoNode) pairs_[pair.first()] = pair;
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (done_.contains(id)) continue;
      const auto found = pairs_.find(id);
      if (found != pairs_.end() && can_have(node(found->second.second()).inputs[1])) {
        emit(found->second);
      } else {
        copy(id);
      }
    }
    return r_.finish();
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }

  // Returns the first product of each kind whose left operand is `g`; kNoNode where there is none.
  Pair pair_of(ValueId g, const std::vector<NodeId>& readers) const {
    Pair out;
    for (const NodeId id : readers) {
      const Node& n = node(id);
      if (n.op != &product_ || !n.attrs.flag("by_parts") || n.attrs.flag("transpose_b")) continue;
      if (n.inputs[0] != g || program_.type(g).shape.rank() != 2) continue;
      NodeId& side = n.attrs.flag("transpose_a") ? out.of_w : out.of_x;
      if (side == kNoNode) side = id;
    }
    return out;
  }

  void copy(NodeId id) {
    r_.copy(node(id));
    done_.insert(id);
  }

  // True if the new program already has `id`, or the value of which `id` is a view.
  bool can_have(ValueId id) const {
    if (r_.has(id)) return true;
    const NodeId maker = program_.value(id).producer;
    return maker != kNoNode && makes_views(program_, node(maker)) &&
           std::ranges::all_of(node(maker).inputs, [&](ValueId x) { return can_have(x); });
  }

  Val have(ValueId id) {
    if (!r_.has(id)) {
      const NodeId maker = program_.value(id).producer;
      for (const ValueId x : node(maker).inputs) have(x);
      copy(maker);
    }
    return r_.map(id);
  }

  void emit(const Pair& pair) {
    const Node &of_x = node(pair.of_x), &of_w = node(pair.of_w);
    const std::vector<Val> operands{r_.map(of_x.inputs[0]), have(of_x.inputs[1]),
                                    have(of_w.inputs[1])};
    const auto guard = r_.from(node(pair.first()));
    const std::vector<Val> results = r_.builder().call(both_, operands);
    r_.replace(of_x, {results[0]});
    r_.replace(of_w, {results[1]});
    done_.insert(pair.second());
  }

  const Program& program_;
  const OpDef &product_, &both_;
  Rewriter r_;
  std::map<NodeId, Pair> pairs_;  // by the first of the two
  std::set<NodeId> done_;
};

}  // namespace

Program by_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  const Program out = marked(program);
  return has_kernel(find_op("linear_grad")) ? Pairing(out).run() : out;
}

bool computes_by_parts(const PassOptions& o) {
  return o.run.precision.split && o.context.traits.has_product_formats();
}

}  // namespace tracestep

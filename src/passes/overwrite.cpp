#include "passes/overwrite.h"

#include <map>
#include <optional>
#include <utility>

#include "analysis/readers.h"
#include "ir/rewrite.h"
#include "passes/decompose.h"
#include "passes/simplify.h"

namespace tracestep {
namespace {

constexpr const char* kBoth = "cross_entropy_with_grad";

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

struct Pair {
  NodeId loss = kNoNode;
  NodeId gradient = kNoNode;
  NodeId narrowing = kNoNode;  // the cast that alone reads the gradient; kNoNode: none
  ValueId logits = kNoValue;   // in the dtype that the gradient is wanted in
};

class Overwrite {
 public:
  explicit Overwrite(const Program& program)
      : program_(program),
        readers_(program),
        parts_(parts_of(find_op(kBoth),
                        {{DType::kF32, {}}, {DType::kF32, {1, 1}}, {DType::kI64, {1}}})),
        r_(program, "overwrite") {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      if (const auto pair = pair_of(static_cast<NodeId>(i))) {
        losses_[pair->loss] = pair->gradient;
        pairs_[pair->gradient] = *pair;
      }
    }
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (!losses_.contains(id)) emit(id);
    }
    TRACESTEP_CHECK(waiting_.empty(), "overwrite: {} nodes wait for a loss", waiting_.size());
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }

  // The pair whose gradient is node `id`.
  std::optional<Pair> pair_of(NodeId id) const {
    const Node& gradient = node(id);
    if (gradient.op != parts_.back()) return std::nullopt;
    const ValueId lse = gradient.inputs[3];
    const NodeId maker = program_.value(lse).producer;
    const bool is_pair = maker != kNoNode && node(maker).op == parts_.front() &&
                         node(maker).outputs[1] == lse && readers_.only(lse) == id &&
                         node(maker).inputs[0] == gradient.inputs[1] &&
                         node(maker).inputs[1] == gradient.inputs[2];
    if (!is_pair || depends_on_loss(maker, id)) return std::nullopt;
    Pair out{.loss = maker, .gradient = id, .logits = gradient.inputs[1]};
    use_narrow_logits(out);
    return out;
  }

  bool depends_on_loss(NodeId loss, NodeId gradient) const {
    std::vector<bool> depends(program_.values.size(), false);
    depends[at(node(loss).outputs[0])] = true;
    for (NodeId id = loss + 1; id < gradient; ++id) {
      for (ValueId input : node(id).inputs) {
        if (!depends[at(input)]) continue;
        for (ValueId output : node(id).outputs) depends[at(output)] = true;
      }
    }
    return depends[at(node(gradient).inputs[0])];
  }

  void use_narrow_logits(Pair& pair) const {
    const NodeId widening = program_.value(pair.logits).producer;
    const NodeId narrowing = readers_.only(node(pair.gradient).outputs[0]);
    if (widening == kNoNode || narrowing == kNoNode) return;
    if (!node(widening).op->only_converts || !node(narrowing).op->only_converts) return;
    const ValueId narrow = node(widening).inputs[0];
    const DType dtype = program_.type(narrow).dtype;
    if (!is_low_precision(dtype) || program_.type(node(narrowing).outputs[0]).dtype != dtype)
      return;
    pair.logits = narrow;
    pair.narrowing = narrowing;
  }

  // A node stands behind all that it reads, wherever it stood before.
  void emit(NodeId id) {
    const Node& n = node(id);
    if (r_.has(n.outputs[0])) return;  // a cast of a gradient
    for (ValueId input : n.inputs) {
      const bool is_dropped = pairs_.contains(id) && input == n.inputs[3];
      if (!is_dropped && !r_.has(input)) return waiting_.push_back(id);
    }
    if (!pairs_.contains(id)) {
      r_.copy(n);
      return;
    }
    emit_pair(pairs_.at(id));
    for (NodeId waiting : std::exchange(waiting_, {})) emit(waiting);
  }

  void emit_pair(const Pair& pair) {
    const Node &loss = node(pair.loss), &gradient = node(pair.gradient);
    const std::vector<const Node*> both{&gradient, &loss};
    const auto guard = r_.builder().like(both);
    r_.builder().set_made_by("overwrite");
    const std::vector<Val> results = r_.builder().call(
        find_op(kBoth),
        {r_.map(gradient.inputs[0]), r_.map(pair.logits), r_.map(gradient.inputs[2])});
    r_.replace(loss.outputs[0], results[0]);
    const NodeId end = pair.narrowing == kNoNode ? pair.gradient : pair.narrowing;
    r_.replace(node(end).outputs[0], results[1]);
  }

  const Program& program_;
  const Readers readers_;
  const std::vector<const OpDef*> parts_;  // the loss, its gradient
  Rewriter r_;
  std::map<NodeId, NodeId> losses_;  // by the loss of a pair: its gradient
  std::map<NodeId, Pair> pairs_;     // by gradient
  std::vector<NodeId> waiting_;      // nodes that read a loss that is not emitted yet
};

}  // namespace

Program overwrite(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return has_kernel(find_op(kBoth)) ? Overwrite(program).run() : program;
}

}  // namespace tracestep

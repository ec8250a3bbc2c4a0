#include "passes/kernel_passes.h"

#include <map>
#include <set>
#include <utility>

#include "ir/rewrite.h"
#include "passes/loss_pairs.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

constexpr const char* kBoth = "cross_entropy_with_grad";

class Overwrite {
 public:
  explicit Overwrite(const Program& program) : program_(program), r_(program, "overwrite") {
    for (const LossPair& pair : find_loss_pairs(program, Readers(program))) {
      losses_.insert(pair.loss);
      pairs_[pair.gradient] = pair;
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

  // Emits a node, or lets it wait until all that it reads is there.
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

  void emit_pair(const LossPair& pair) {
    const Node &loss = node(pair.loss), &gradient = node(pair.gradient);
    const std::vector<const Node*> both{&gradient, &loss};
    const auto guard = r_.builder().like(both);
    r_.builder().set_made_by("overwrite");
    std::vector<Val> operands{r_.map(gradient.inputs[0]), r_.map(pair.logits),
                              r_.map(gradient.inputs[2])};
    if (gradient.inputs.size() > 4) operands.push_back(r_.map(gradient.inputs[4]));
    const std::vector<Val> results = r_.builder().call(find_op(kBoth), operands, gradient.attrs);
    r_.replace(loss.outputs[0], results[0]);
    const NodeId end = pair.narrowing == kNoNode ? pair.gradient : pair.narrowing;
    r_.replace(node(end).outputs[0], results[1]);
  }

  const Program& program_;
  Rewriter r_;
  std::set<NodeId> losses_;           // of pairs
  std::map<NodeId, LossPair> pairs_;  // by gradient
  std::vector<NodeId> waiting_;       // nodes that read a loss that is not emitted yet
};

}  // namespace

Program overwrite(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return has_kernel(find_op(kBoth)) ? Overwrite(program).run() : program;
}

}  // namespace tracestep

// Keeps narrow values for backward instead of the wide ones that forward makes from them.
#include <algorithm>
#include <map>
#include <optional>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

class KeepNarrow {
 public:
  explicit KeepNarrow(const Program& program)
      : program_(program), readers_(program), r_(program, "keep_narrow") {}

  Program run() {
    for (const Node& node : program_.nodes) {
      std::vector<Val> inputs;
      for (ValueId id : node.inputs) {
        inputs.push_back(is_of_backward(node) && is_kept_wide(id) ? again(id) : r_.map(id));
      }
      r_.copy(node, inputs);
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node* maker_of(ValueId id) const {
    const NodeId maker = program_.value(id).producer;
    return maker == kNoNode ? nullptr : &program_.node(maker);
  }
  static bool is_of_backward(const Node& node) {
    return node.origin().phase == Phase::kBackward && node.epoch == 0;
  }
  static bool is_of_forward(const Node& node) {
    return node.origin().phase == Phase::kForward && node.epoch == 0;
  }
  bool is_low(ValueId id) const { return is_low_precision(program_.type(id).dtype); }

  // True for a parameter or a constant, or views of one.
  bool is_of_parameter(ValueId id) const {
    const Node* maker = maker_of(id);
    const LeafKind kind = program_.value(id).leaf;
    if (maker == nullptr) return kind == LeafKind::kParameter || kind == LeafKind::kConstant;
    return maker->op->is_view() && maker->inputs.size() == 1 && is_of_parameter(maker->inputs[0]);
  }

  // True if forward makes the value from a narrow one, by a cast and by adding parameters.
  bool is_widened(ValueId id) const {
    const Node* maker = maker_of(id);
    if (maker == nullptr || !is_of_forward(*maker)) return false;
    if (program_.type(id).dtype != DType::kF32) return false;
    if (maker->op->only_converts) return is_low(maker->inputs[0]);
    if (maker->op->is_view()) return maker->inputs.size() == 1 && is_widened(maker->inputs[0]);
    return maker->op->is_sum && maker->inputs.size() == 2 &&
           ((is_widened(maker->inputs[0]) && is_of_parameter(maker->inputs[1])) ||
            (is_of_parameter(maker->inputs[0]) && is_widened(maker->inputs[1])));
  }

  // True if no backward node with a kernel of its own reads the value: such a node would need all
  // of it in memory again.
  bool is_read_by_fused_kernels(ValueId id) const {
    return std::ranges::all_of(readers_.nodes[at(id)], [&](NodeId reader) {
      const Node& node = program_.node(reader);
      if (node.op->is_view()) return is_read_by_fused_kernels(node.outputs[0]);
      return is_of_forward(node) || (is_of_backward(node) && node.op->fusion != Fusion::kNone);
    });
  }

  bool is_kept_wide(ValueId id) {
    const auto [found, is_new] = kept_wide_.try_emplace(id, false);
    if (is_new) found->second = is_widened(id) && is_read_by_fused_kernels(id);
    return found->second;
  }

  // Computes the value again in backward, from parameters and narrow values, which are kept.
  Val again(ValueId id) {
    if (const auto found = again_.find(id); found != again_.end()) return found->second;
    const Node& maker = *maker_of(id);
    std::vector<Val> inputs;
    for (ValueId input : maker.inputs) {
      inputs.push_back(is_widened(input) ? again(input) : r_.map(input));
    }
    constexpr Phase kBackward = Phase::kBackward;
    const auto guard = r_.from(maker, &kBackward);
    return again_[id] = r_.builder().call(*maker.op, inputs, maker.attrs).front();
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
  std::map<ValueId, bool> kept_wide_;
  std::map<ValueId, Val> again_;
};

}  // namespace

Program keep_narrow(const Program& program) {
  return KeepNarrow(program).run();
}

bool keeps_narrow(const PassOptions& o) {
  return o.casts() && o.differentiates() && fuses(o);
}

}  // namespace tracestep

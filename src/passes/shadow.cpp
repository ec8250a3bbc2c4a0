#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

#include <map>

#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class Shadow {
 public:
  Shadow(const Program& program, Shadows which)
      : program_(program), which_(which), r_(program, "shadow") {
    for (const Update& u : program.updates) updates_[u.leaf] = u.value;
    for (ValueId id : program.leaves) {
      const ValueId shadow = program.find_leaf(shadow_name(program.value(id).name));
      if (shadow != kNoValue && !updates_.contains(shadow)) states_.emplace(id, r_.map(shadow));
    }
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (is_weight_cast(node)) {
        replace_cast(node);
      } else {
        copy(node);
      }
    }
    for (const auto& [leaf, state] : states_) update(leaf, state);
    return remove_dead_nodes(r_.finish());
  }

 private:
  bool is_weight_cast(const Node& node) const {
    const ValueId from = node.inputs.empty() ? kNoValue : node.inputs[0];
    if (from == kNoValue) return false;
    const LeafKind leaf = program_.value(from).leaf;
    const bool is_in_block = !layer_of(node.origin().path).empty();
    if (which_ == Shadows::kNone || (which_ == Shadows::kOutsideBlocks && is_in_block) ||
        (which_ == Shadows::kInBlocks && !is_in_block)) {
      return false;
    }
    return (leaf == LeafKind::kParameter || leaf == LeafKind::kConstant) &&
           program_.type(from).dtype == DType::kF32 &&
           program_.value(node.outputs[0]).role == Role::kWeightCast;
  }

  void replace_cast(const Node& node) {
    const ValueId leaf = node.inputs[0];
    const Type& type = program_.type(node.outputs[0]);
    const auto found = states_.find(leaf);
    if (found == states_.end()) {
      const Val state =
          r_.builder().state_of(r_.map(leaf), kShadowPrefix, type.dtype, Role::kWeightCast);
      states_.emplace(leaf, state);
      r_.replace(node, {state});
    } else if (found->second.type() == type) {
      r_.replace(node, {found->second});
    } else {
      r_.copy(node);
    }
  }

  void copy(const Node& node) {
    std::vector<Val> inputs = r_.inputs(node);
    if (node.op->widens) {
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = before_widening(node, i);
    }
    r_.copy(node, inputs);
  }

  // Returns operand `i`; for a gradient that was widened by a cast, the cast's operand.
  Val before_widening(const Node& node, std::size_t i) {
    const ValueId id = node.inputs[i];
    const Value& value = program_.value(id);
    if (value.role != Role::kGradient || value.producer == kNoNode) return r_.map(id);
    const Node& producer = program_.node(value.producer);
    const bool widened = producer.op->only_converts &&
                         is_low_precision(program_.type(producer.inputs[0]).dtype) &&
                         !is_low_precision(value.type.dtype);
    if (!widened) return r_.map(id);
    const Val out = r_.map(producer.inputs[0]);
    r_.builder().set_role(out, Role::kGradient);
    return out;
  }

  void update(ValueId leaf, Val state) {
    const auto found = updates_.find(leaf);
    const NodeId producer =
        found == updates_.end() ? kNoNode : program_.value(found->second).producer;
    if (producer == kNoNode) return;  // the parameter stays as it is
    const auto guard = r_.from(program_.node(producer));
    const Val out = ops::cast(r_.map(found->second), state.dtype());
    r_.builder().set_role(out, Role::kWeightCast);
    r_.builder().update(state, out);
  }

  const Program& program_;
  const Shadows which_;
  Rewriter r_;
  std::map<ValueId, ValueId> updates_;  // by leaf
  std::map<ValueId, Val> states_;       // by parameter: its shadow, if the program has one
};

}  // namespace

Program shadow(const Program& program, Shadows which) {
  return Shadow(program, which).run();
}

// True if updates come at the end: the update of a weight can then write its narrow copy.
bool keeps_shadows(const PassOptions& o) {
  return o.trains() && o.run.updates == UpdateTime::kEnd;
}

}  // namespace tracestep

#include "passes/autograd.h"
#include "passes/pass_rules.h"

#include <map>

#include "base/indexed.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

constexpr Phase kBackwardPhase = Phase::kBackward;

class Autograd {
 public:
  Autograd(const Program& program, const AutogradOptions& options)
      : program_(program),
        options_(options),
        rewriter_(program, "autograd"),
        needed_(program.values.size(), false),
        gradients_(program.values.size()),
        on_state_(program.values.size(), false) {}

  Program run() {
    const ValueId loss = program_.find_output(options_.loss);
    if (loss == kNoValue || !program_.type(loss).shape.empty() ||
        !is_floating(program_.type(loss).dtype)) {
      fail_usage("autograd", "there is no floating rank-0 output '{}' to differentiate",
                 options_.loss);
    }
    mark_needed();
    for (const Node& node : program_.nodes) rewriter_.copy(node);
    seed(loss);
    const std::vector<std::vector<ValueId>> complete = complete_at();
    for (std::size_t i = program_.nodes.size(); i-- > 0;) {
      backward(program_.nodes[i]);
      for (const ValueId leaf : complete[i]) finish_leaf(leaf);
    }
    for (const ValueId leaf : complete.back()) finish_leaf(leaf);
    return rewriter_.finish();
  }

 private:
  bool wants(const Value& leaf) const {
    if (!is_floating(leaf.type.dtype)) return false;
    return leaf.leaf == LeafKind::kParameter || (options_.inputs && leaf.leaf == LeafKind::kInput);
  }

  // Returns, for each forward node, the leaves whose gradients are complete after its backward
  // nodes and are stored to states there; the last element has the leaves that wait for the end.
  std::vector<std::vector<ValueId>> complete_at() const {
    std::vector<std::vector<ValueId>> out(program_.nodes.size() + 1);
    std::vector<std::size_t> first(program_.values.size(), program_.nodes.size());
    for (std::size_t i = program_.nodes.size(); i-- > 0;) {
      for (const ValueId input : program_.nodes[i].inputs) first[at(input)] = i;
    }
    const bool is_early = options_.kind != GradientKind::kTransient;
    for (const ValueId leaf : program_.leaves) {
      if (!wants(program_.value(leaf))) continue;
      out[is_early ? first[at(leaf)] : program_.nodes.size()].push_back(leaf);
    }
    return out;
  }

  // Marks the values that need a gradient: wanted leaves, and floating values computed from them.
  void mark_needed() {
    for (ValueId leaf : program_.leaves) needed_[at(leaf)] = wants(program_.value(leaf));
    for (const Node& node : program_.nodes) {
      bool any = false;
      for (ValueId input : node.inputs) any = any || needed_[at(input)];
      for (ValueId output : node.outputs) {
        needed_[at(output)] = any && is_floating(program_.type(output).dtype);
      }
    }
  }

  void seed(ValueId loss) {
    Builder& b = rewriter_.builder();
    const auto maker = program_.value(loss).producer;
    if (maker == kNoNode) return;
    const auto guard = rewriter_.from(program_.node(maker), &kBackwardPhase);
    const Type& type = program_.type(loss);
    if (options_.scaled) {
      const Val scale = loss_scale_state(b);
      gradients_[at(loss)] =
          scale.dtype() == type.dtype ? scale : b.call1("cast", {scale}, {{"dtype", type.dtype}});
      return;
    }
    gradients_[at(loss)] =
        b.call1("fill", {}, {{"value", 1.0}, {"dtype", type.dtype}, {"shape", type.shape}});
  }

  void backward(const Node& node) {
    std::vector<Val> output_grads, outputs;
    bool any = false;
    for (ValueId output : node.outputs) {
      output_grads.push_back(gradients_[at(output)]);
      outputs.push_back(rewriter_.map(output));
      any = any || output_grads.back();
    }
    std::vector<bool> wanted;
    bool some_wanted = false;
    for (ValueId input : node.inputs) {
      wanted.push_back(needed_[at(input)]);
      some_wanted = some_wanted || wanted.back();
    }
    if (!any || !some_wanted) return;
    if (!node.op->gradient) {
      fail_usage("autograd",
                 "{} ({}) has no gradient rule and lies between a parameter and the "
                 "loss; decompose it first",
                 node.op->name, node.origin().path);
    }
    std::vector<Val> grads;
    {
      const auto guard = rewriter_.from(node, &kBackwardPhase);
      const std::vector<Val> inputs = rewriter_.inputs(node);
      grads = node.op->gradient(
          {rewriter_.builder(), node.attrs, inputs, outputs, output_grads, wanted});
    }
    // A rule may return more gradients than there are operands: optional ones may be absent.
    TRACESTEP_CHECK(grads.size() >= node.inputs.size(), "gradient rule of {}", node.op->name);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (wanted[i] && grads[i]) accumulate(node.inputs[i], grads[i]);
    }
  }

  void accumulate(ValueId value, Val grad) {
    TRACESTEP_CHECK(grad.type() == program_.type(value), "gradient of value {} is {}, not {}",
                    value, grad.type().str(), program_.type(value).str());
    Val& slot = gradients_[at(value)];
    if (!slot) {
      slot = grad;
      return;
    }
    const NodeId producer = program_.value(value).producer;
    if (producer == kNoNode) {
      const auto path = rewriter_.builder().scope(leaf_path(value));
      const auto phase = rewriter_.builder().phase(Phase::kBackward);
      const auto pass = rewriter_.builder().made_by("autograd");
      if (options_.kind == GradientKind::kAccumulate && !on_state_[at(value)]) {
        // Each term is added to what is there, which a product or a scatter does by itself.
        slot = rewriter_.builder().call1("add", {state_of(value, slot.dtype()), slot});
        on_state_[at(value)] = true;
      }
      slot = rewriter_.builder().call1("add", {slot, grad});
    } else {
      const auto guard = rewriter_.from(program_.node(producer), &kBackwardPhase);
      slot = rewriter_.builder().call1("add", {slot, grad});
    }
  }

  std::string leaf_path(ValueId leaf) const { return program_.value(leaf).name; }

  void finish_leaf(ValueId id) {
    Builder& b = rewriter_.builder();
    const Value& leaf = program_.value(id);
    const auto path = b.scope(leaf_path(id));
    const auto phase = b.phase(Phase::kBackward);
    const auto pass = b.made_by("autograd");
    Val grad = gradients_[at(id)];
    if (!grad) {
      grad = b.call1("fill", {},
                     {{"value", 0.0}, {"dtype", leaf.type.dtype}, {"shape", leaf.type.shape}});
    }
    const std::string name = gradient_name(leaf.name);
    if (options_.kind == GradientKind::kTransient) {
      b.set_role(grad, Role::kGradient);
      b.output(name, grad);
      return;
    }
    if (options_.narrow_sums && !on_state_[at(id)]) grad = before_widening(grad);
    const Val state = state_of(id, grad.dtype());
    if (options_.kind == GradientKind::kPersistent) {
      b.update(state, b.call1("assign", {state, grad}));
    } else {
      b.update(state, on_state_[at(id)] ? grad : b.call1("add", {state, grad}));
    }
  }

  // Returns the state that holds the gradient of a leaf between runs, made on the first call.
  Val state_of(ValueId leaf, DType dtype) {
    Val& state = states_[leaf];
    if (!state) {
      state = rewriter_.builder().state_of(rewriter_.map(leaf), kGradientPrefix, dtype,
                                           Role::kGradient);
    }
    return state;
  }

  // Returns the operand of the cast that widened `grad` from a low dtype; `grad` if none did.
  Val before_widening(Val grad) {
    const Program& made = rewriter_.builder().program();
    const NodeId maker = made.value(grad.id).producer;
    if (maker == kNoNode || !made.node(maker).op->only_converts) return grad;
    const ValueId from = made.node(maker).inputs[0];
    return is_low_precision(made.type(from).dtype) ? rewriter_.builder().at(from) : grad;
  }

  const Program& program_;
  AutogradOptions options_;
  Rewriter rewriter_;
  std::vector<bool> needed_;
  std::vector<Val> gradients_;
  std::vector<bool> on_state_;     // the gradient begins with what its state holds
  std::map<ValueId, Val> states_;  // of leaves
};

}  // namespace

std::string gradient_name(std::string_view parameter) {
  return std::string(kGradientPrefix) + std::string(parameter);
}

Program autograd(const Program& program, const AutogradOptions& options) {
  return Autograd(program, options).run();
}

// True if backward begins with the loss scale: where loss scaling is on, or the precision needs
// it and the gradients are for updates, by this step or by an optimizer that runs later.
bool PassOptions::scales_gradients() const {
  const bool are_for_updates = updates() || run.gradients != GradientKind::kTransient;
  return run.optimizer.loss_scaling.enabled || (scales_loss(run.precision) && are_for_updates);
}

Program autograd(const Program& p, const PassOptions& o) {
  return autograd(p, {.kind = o.run.gradients,
                      .scaled = o.scales_gradients(),
                      .narrow_sums = o.run.grad_accum_dtype == GradientSums::kLow});
}

}  // namespace tracestep

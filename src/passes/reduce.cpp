#include "passes/parallel_passes.h"

#include <map>

#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "passes/autograd.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

constexpr Phase kCommunicationPhase = Phase::kCommunication;

class Reduce {
 public:
  Reduce(const Program& program, const Parallel& choice)
      : program_(program), choice_(choice), r_(body_of(program), "reduce") {
    for (const Output& o : program.outputs) {
      if (!is_gradient(o) || choice.replicas() == 1) continue;
      const NodeId producer = program.value(o.value).producer;
      // Weights in parts: autograd made their sums.
      if (!choice.shards_weights()) ready_[producer].push_back(&o);
    }
  }

  Program run() {
    sum_ready_at(kNoNode);  // states of a step that another program computed
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      copy(program_.nodes[i]);
      sum_ready_at(static_cast<NodeId>(i));
    }
    for (const Output* gradient : kept_) sum(*gradient);
    return finish();
  }

 private:
  static bool is_gradient(const Output& o) { return o.name.starts_with(kGradientPrefix); }
  // Copies the program without its outputs, which finish() adds.
  const Program& body_of(const Program& program) {
    body_ = program;
    body_.outputs.clear();
    return body_;
  }

  void copy(const Node& node) {
    const bool communicates = node.op->kernel_class == KernelClass::kCollective;
    const auto guard = r_.builder().like(node, communicates ? &kCommunicationPhase : nullptr);
    std::vector<Val> inputs = r_.inputs(node);
    const bool sums = communicates && group_of(node.attrs) == choice_.across_replicas();
    if (sums) inputs[0] = r_.map(summed(node.inputs[0]));
    std::vector<Val> results = r_.builder().call(*node.op, inputs, node.attrs);
    if (sums) results[0] = widened(results[0], program_.type(node.outputs[0]).dtype);
    r_.replace(node, results);
  }

  // Returns the value that is summed for this gradient: itself, or what a cast widened to it.
  ValueId summed(ValueId gradient) const {
    const NodeId maker = program_.value(gradient).producer;
    if (!choice_.low_sums || maker == kNoNode || !program_.node(maker).op->only_converts) {
      return gradient;
    }
    const ValueId from = program_.node(maker).inputs[0];
    return is_low_precision(program_.type(from).dtype) ? from : gradient;
  }

  // Converts a sum of low precision to the gradient that the optimizer expects.
  Val widened(Val sum, DType dtype) {
    if (sum.dtype() == dtype) return sum;
    r_.builder().set_role(sum, Role::kGradient);
    return r_.builder().call1("cast", {sum}, {{"dtype", dtype}});
  }

  // Sums gradients that are ready at `node`; with shard=1, a rank keeps them until backward ends.
  void sum_ready_at(NodeId node) {
    const auto found = ready_.find(node);
    if (found == ready_.end()) return;
    const bool keeps = choice_.shards_optimizer() && !choice_.shards_gradients();
    for (const Output* gradient : found->second) {
      if (keeps) {
        kept_.push_back(gradient);
      } else {
        sum(*gradient);
      }
    }
  }

  // Returns the path of the parameter that the gradient belongs to.
  static std::string path_of(const Output& gradient) {
    return component_path(gradient.name.substr(kGradientPrefix.size()));
  }

  // Sums `x` over the replicas; the result has `dtype`.
  Val call(const std::string& path, std::string_view op, ValueId x, DType dtype) {
    Builder& b = r_.builder();
    const auto scope = b.scope(path);
    const auto phase = b.phase(Phase::kCommunication);
    const auto pass = b.made_by("reduce");
    return widened(b.call1(op, {r_.map(x)}, in_group(choice_.across_replicas())), dtype);
  }

  void sum(const Output& gradient) {
    const std::string_view op = choice_.shards_optimizer() ? "reduce_scatter" : "all_reduce";
    const Val value =
        call(path_of(gradient), op, summed(gradient.value), program_.type(gradient.value).dtype);
    r_.builder().set_role(value, Role::kGradient);
    sums_[gradient.name] = value;
  }

  Program finish() {
    const ValueId loss = program_.find_output("loss");
    if (loss != kNoValue && choice_.replicas() > 1) {
      const NodeId producer = program_.value(loss).producer;
      const std::string path = producer == kNoNode ? "" : program_.node(producer).origin().path;
      sums_["loss"] = call(path, "all_reduce", loss, program_.type(loss).dtype);
    }
    for (const Output& o : program_.outputs) {
      const auto found = sums_.find(o.name);
      r_.builder().output(o.name, found == sums_.end() ? r_.map(o.value) : found->second);
    }
    return r_.finish();
  }

  const Program& program_;
  const Parallel choice_;
  Program body_;
  Rewriter r_;
  std::map<NodeId, std::vector<const Output*>> ready_;  // by the node that makes the gradient
  std::vector<const Output*> kept_;                     // summed after backward
  std::map<std::string, Val> sums_;                     // by the name of the output
};

}  // namespace

Program reduce(const Program& program, const Parallel& choice) {
  return Reduce(program, choice).run();
}

bool reduces(const PassOptions& o) {
  const bool is_summed = o.context.has_gradients && o.context.sums_shards;
  return o.run.parallel.is_on() && o.trains() && !is_summed;
}

Program reduce(const Program& p, const PassOptions& o) {
  return reduce(p, o.run.parallel);
}

}  // namespace tracestep

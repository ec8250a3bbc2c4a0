#include "passes/reduce.h"

#include <map>

#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "passes/autograd.h"

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
    add_ready_at(kNoNode);  // states of a step that another program computed
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      copy(program_.nodes[i]);
      add_ready_at(static_cast<NodeId>(i));
    }
    flush();
    return finish();
  }

 private:
  static bool is_gradient(const Output& o) { return o.name.starts_with(kGradientPrefix); }
  // Without outputs, which finish() adds.
  const Program& body_of(const Program& program) {
    body_ = program;
    body_.outputs.clear();
    return body_;
  }

  void copy(const Node& node) {
    const bool communicates = node.op->kernel_class == KernelClass::kCollective;
    const auto guard = r_.builder().like(node, communicates ? &kCommunicationPhase : nullptr);
    r_.replace(node, r_.builder().call(*node.op, r_.inputs(node), node.attrs));
  }

  std::int64_t full_bytes() const {
    if (choice_.shard == 0) return choice_.bucket_bytes;
    return choice_.shards_gradients() ? Parallel::kEachTensor : Parallel::kAllTensors;
  }

  void add_ready_at(NodeId node) {
    const auto found = ready_.find(node);
    if (found == ready_.end()) return;
    for (const Output* gradient : found->second) add(*gradient);
  }

  void add(const Output& gradient) {
    const Type& type = program_.type(gradient.value);
    if (!bucket_.empty() && program_.type(bucket_[0]->value).dtype != type.dtype) flush();
    bucket_.push_back(&gradient);
    bucket_bytes_ += type.bytes();
    const std::int64_t full = full_bytes();
    if (full != Parallel::kAllTensors && bucket_bytes_ >= full) flush();
  }

  void flush() {
    if (choice_.shard > 0) {
      for (const Output* gradient : bucket_) sum_part(*gradient);
    } else if (bucket_.size() == 1) {
      sum_one(*bucket_[0]);
    } else if (!bucket_.empty()) {
      sum_together();
    }
    bucket_.clear();
    bucket_bytes_ = 0;
  }

  // The path of the parameter that the gradient belongs to.
  static std::string path_of(const Output& gradient) {
    return component_path(gradient.name.substr(kGradientPrefix.size()));
  }

  Val call(const std::string& path, std::string_view op, Val x) {
    Builder& b = r_.builder();
    const auto scope = b.scope(path);
    const auto phase = b.phase(Phase::kCommunication);
    const auto pass = b.made_by("reduce");
    return b.call1(op, {x}, in_group(choice_.across_replicas()));
  }

  void set(const Output& gradient, Val value) {
    r_.builder().set_role(value, Role::kGradient);
    sums_[gradient.name] = value;
  }

  void sum_part(const Output& gradient) {
    set(gradient, call(path_of(gradient), "reduce_scatter", r_.map(gradient.value)));
  }

  void sum_one(const Output& gradient) {
    set(gradient, call(path_of(gradient), "all_reduce", r_.map(gradient.value)));
  }

  // Side by side in one vector, of which the gradients are views afterwards.
  void sum_together() {
    Builder& b = r_.builder();
    const auto phase = b.phase(Phase::kCommunication);
    const auto pass = b.made_by("reduce");
    std::vector<Val> flat;
    for (const Output* gradient : bucket_) {
      const auto scope = b.scope(path_of(*gradient));
      const Val x = r_.map(gradient->value);
      flat.push_back(ops::reshape(x, {x.type().count()}));
    }
    const auto scope = b.scope(fmt::format("bucket.{}", buckets_++));
    const Val sum =
        b.call1("all_reduce", {ops::concat(flat, 0)}, in_group(choice_.across_replicas()));
    std::int64_t first = 0;
    for (const Output* gradient : bucket_) {
      const Type& type = program_.type(gradient->value);
      set(*gradient, ops::reshape(ops::slice(sum, 0, first, first + type.count()), type.shape));
      first += type.count();
    }
  }

  Program finish() {
    const ValueId loss = program_.find_output("loss");
    if (loss != kNoValue && choice_.replicas() > 1) {
      const NodeId producer = program_.value(loss).producer;
      const std::string path = producer == kNoNode ? "" : program_.node(producer).origin().path;
      sums_["loss"] = call(path, "all_reduce", r_.map(loss));
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
  std::vector<const Output*> bucket_;                   // not summed yet
  std::int64_t bucket_bytes_ = 0;
  int buckets_ = 0;
  std::map<std::string, Val> sums_;  // by the name of the output
};

}  // namespace

Program reduce(const Program& program, const Parallel& choice) {
  return Reduce(program, choice).run();
}

}  // namespace tracestep

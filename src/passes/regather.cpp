#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include <map>

#include "base/indexed.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

bool is_later(const Node& node) {
  const Phase phase = node.origin().phase;
  return phase == Phase::kBackward || phase == Phase::kRecompute;
}

class Regather {
 public:
  explicit Regather(const Program& program)
      : program_(program), r_(program, "regather"), from_weights_(program.values.size(), false) {
    for (const Node& node : program.nodes) {
      if (!is_made_again(node)) continue;
      for (ValueId id : node.outputs) from_weights_[at(id)] = true;
    }
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      if (!is_later(node)) {
        r_.copy(node);
        continue;
      }
      std::vector<Val> inputs;
      for (ValueId id : node.inputs) inputs.push_back(again(id));
      r_.copy(node, inputs);
    }
    return r_.finish();
  }

 private:
  // True if the node widens constants: it reads these alone and makes more bytes than they have.
  bool is_widened(const Node& node) const {
    std::int64_t read = 0, made = 0;
    for (const ValueId id : node.inputs) {
      if (program_.value(id).leaf != LeafKind::kConstant) return false;
      read += program_.type(id).bytes();
    }
    for (const ValueId id : node.outputs) made += program_.type(id).bytes();
    return !node.inputs.empty() && !node.op->is_view() && made > read;
  }

  // True if backward computes this forward node again instead of keeping its result: a gather of
  // weights, views and casts of weights or of gathered ones, and widened constants.
  bool is_made_again(const Node& node) const {
    if (is_later(node)) return false;
    if (is_widened(node)) return true;
    if (node.inputs.size() != 1) return false;
    const Value& first = program_.value(node.inputs[0]);
    const bool is_part = first.leaf == LeafKind::kParameter || first.role == Role::kWeightCast;
    if (node.op->kernel_class == KernelClass::kCollective) {
      return node.origin().phase == Phase::kCommunication && is_part;
    }
    const bool is_plain = node.op->is_view() || node.op->only_converts;
    return is_plain && (first.leaf == LeafKind::kParameter || from_weights_[at(node.inputs[0])]);
  }

  Val again(ValueId id) {
    if (!from_weights_[at(id)]) return r_.map(id);
    if (const auto found = copies_.find(id); found != copies_.end()) return found->second;
    const Value& value = program_.value(id);
    const Node& node = program_.node(value.producer);
    std::vector<Val> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(again(input));
    const auto guard = r_.from(node);
    r_.builder().set_epoch(kSecondEpoch);
    const Val out = r_.builder().call(*node.op, inputs, node.attrs).front();
    if (value.role != Role::kNone) r_.builder().set_role(out, value.role);
    copies_[id] = out;
    return out;
  }

  // The epoch of the second gather, so that no pass merges it with the first.
  static constexpr int kSecondEpoch = 1;

  const Program& program_;
  Rewriter r_;
  std::vector<bool> from_weights_;  // by value
  std::map<ValueId, Val> copies_;   // by value
};

}  // namespace

Program regather(const Program& program) {
  return Regather(program).run();
}

bool regathers(const PassOptions& o) {
  return (o.shards_weights() || keeps_nf4(o)) && o.differentiates();
}

}  // namespace tracestep

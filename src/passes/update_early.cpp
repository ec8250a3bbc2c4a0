#include "passes/update_passes.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/indexed.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

constexpr NodeId kAtOnce = -1;

class EarlyUpdates {
 public:
  explicit EarlyUpdates(const Program& program)
      : program_(program),
        rewriter_(program, "update_early"),
        done_(program.nodes.size(), false),
        updates_behind_(program.nodes.size()),
        read_before_(program.nodes.size()) {
    find_readers();
    const std::vector<NodeId> due = due_behind();
    for (const Update& update : program.updates) {
      const NodeId maker = program.value(update.value).producer;
      if (!is_optimizer(maker) || due[at(maker)] == kAtOnce) continue;
      updates_behind_[at(due[at(maker)])].push_back(maker);
    }
  }

  Program run() {
    const auto end = static_cast<NodeId>(program_.nodes.size());
    for (NodeId id = 0; id < end; ++id) {
      if (is_optimizer(id)) continue;
      emit(id);
      for (NodeId update : updates_behind_[at(id)]) emit(update);
    }
    for (NodeId id = 0; id < end; ++id) emit(id);  // the optimizer nodes that are left
    return rewriter_.finish();
  }

 private:
  bool is_optimizer(NodeId id) const {
    return id != kNoNode && program_.node(id).origin().phase == Phase::kOptimizer;
  }

  // Notes which optimizer nodes read the old value of a leaf: of an expanded optimizer several do,
  // and all come before the node that makes the new value.
  void find_readers() {
    std::map<ValueId, NodeId> makers;  // by leaf
    for (const Update& update : program_.updates) {
      makers.emplace(update.leaf, program_.value(update.value).producer);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      if (!is_optimizer(id)) continue;
      for (ValueId input : program_.node(id).inputs) {
        for (ValueId leaf : leaves_of(program_, input)) {
          const auto found = makers.find(leaf);
          const bool is_of_another =
              found != makers.end() && is_optimizer(found->second) && found->second != id;
          if (is_of_another) read_before_[at(found->second)].push_back(id);
        }
      }
    }
  }

  // Returns, for each value, the last node outside of the optimizer that reads it, also through
  // views and assemblies.
  std::vector<NodeId> last_readers() const {
    std::vector<NodeId> out(program_.values.size(), kAtOnce);
    for (auto id = static_cast<NodeId>(program_.nodes.size()); id-- > 0;) {
      if (is_optimizer(id)) continue;
      const Node& node = program_.node(id);
      NodeId last = id;
      if (!launches(program_, node)) {
        for (ValueId output : node.outputs) last = std::max(last, out[at(output)]);
      }
      for (ValueId input : node.inputs) out[at(input)] = std::max(out[at(input)], last);
    }
    return out;
  }

  // Returns, for each optimizer node, the last of the other nodes that must run before it.
  std::vector<NodeId> due_behind() const {
    const std::vector<NodeId> last = last_readers();
    std::vector<NodeId> out(program_.nodes.size(), kAtOnce);
    for (const Update& update : program_.updates) {
      const NodeId maker = program_.value(update.value).producer;
      if (is_optimizer(maker)) out[at(maker)] = std::max(out[at(maker)], last[at(update.leaf)]);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      if (!is_optimizer(id)) continue;
      for (ValueId input : program_.node(id).inputs) {
        const NodeId maker = program_.value(input).producer;
        if (maker == kNoNode) continue;
        out[at(id)] = std::max(out[at(id)], is_optimizer(maker) ? out[at(maker)] : maker);
      }
      for (NodeId reader : read_before_[at(id)])
        out[at(id)] = std::max(out[at(id)], out[at(reader)]);
    }
    return out;
  }

  void emit(NodeId id) {
    if (done_[at(id)]) return;
    const Node& node = program_.node(id);
    for (ValueId input : node.inputs) {
      const NodeId maker = program_.value(input).producer;
      if (maker != kNoNode) emit(maker);
    }
    for (NodeId reader : read_before_[at(id)]) emit(reader);
    done_[at(id)] = true;
    rewriter_.copy(node);
  }

  const Program& program_;
  Rewriter rewriter_;
  std::vector<bool> done_;
  std::vector<std::vector<NodeId>> updates_behind_;  // by node
  std::vector<std::vector<NodeId>> read_before_;     // by node that makes a leaf's new value
};

}  // namespace

Program update_early(const Program& program) {
  return EarlyUpdates(program).run();
}

}  // namespace tracestep

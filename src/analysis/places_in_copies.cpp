#include "analysis/places_in_copies.h"

#include <algorithm>
#include <set>
#include <vector>

#include "analysis/lanes.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "ops/adamw_groups.h"

namespace tracestep {
namespace {

constexpr const char* kUpdate = "multi_adamw";  // does not read a shadow, which it writes last

// A narrow copy that `update` overwrites, and the gradient that it reads at the same elements.
struct Copy {
  ValueId leaf = kNoValue, gradient = kNoValue;
  NodeId update = kNoNode;
};

class Places {
 public:
  explicit Places(const Program& program)
      : program_(program), last_read_(program.values.size(), kNoNode) {
    for (const Node& node : program.nodes) {
      if (!node.op->is_assembly()) continue;
      for (ValueId part : node.inputs) elsewhere_.insert(base(part));
    }
    for (const Update& u : program.updates) new_value_[u.leaf] = u.value;
    for (const Output& o : program.outputs) read(o.value, end());
    for (const Update& u : program.updates) read(u.value, end());
  }

  std::map<ValueId, ValueId> run() {
    if (!is_in_order()) return {};
    list_copies();
    if (copies_.empty()) return {};
    for (NodeId id = 0; id < end(); ++id) {
      if (makes_views(program_, program_.node(id))) continue;
      for (ValueId input : program_.node(id).inputs) {
        if (const auto copy = update_of_.find(input);
            copy == update_of_.end() || copy->second != id)
          read(input, id);
      }
    }
    place_gradients();
    place_others();
    return std::move(out_);
  }

 private:
  NodeId end() const { return static_cast<NodeId>(program_.nodes.size()); }
  ValueId base(ValueId id) const { return program_.value(id).layout.base; }

  bool is_in_order() const {
    return std::ranges::none_of(program_.nodes, [](const Node& node) {
      return node.op->kernel_class == KernelClass::kCollective ||
             (has_lane(*node.op) && node.attrs.integer("lane") != 0);
    });
  }

  // Notes that node `by` reads the value: for a view, its base and the leaves that it shows.
  void read(ValueId id, NodeId by) {
    const auto note = [&](ValueId owner) {
      last_read_[at(owner)] = std::max(last_read_[at(owner)], by);
    };
    note(base(id));
    for (ValueId leaf : leaves_of(program_, id)) note(leaf);
  }

  void list_copies() {
    for (NodeId id = 0; id < end(); ++id) {
      const Node& node = program_.node(id);
      if (node.op->name != kUpdate) continue;
      const AdamwGroups groups = adamw_groups(node.attrs, node.inputs.size());
      if (!groups.shadowed) continue;
      for (std::size_t t = 0; t < groups.count; ++t) {
        const ValueId leaf = node.inputs[groups.shadow(t)];
        const ValueId written = node.outputs[groups.first_output(t + 1) - 1];
        const auto update = new_value_.find(leaf);
        const Value& copy = program_.value(leaf);
        if (copy.role != Role::kWeightCast || copy.memory == Memory::kHost ||
            copy.type.count() == 0 || update == new_value_.end() || update->second != written) {
          continue;
        }
        copies_.push_back({leaf, node.inputs[groups.first_input(t) + 1], id});
        update_of_[leaf] = id;
      }
    }
  }

  // True if the value is read and has memory of its own: no leaf, view, assembly or part of one.
  bool is_movable(ValueId id) const {
    const Value& v = program_.value(id);
    return v.leaf == LeafKind::kNone && v.layout.base == id && !elsewhere_.contains(id) &&
           !program_.node(v.producer).op->is_assembly() && last_read_[at(id)] != kNoNode;
  }

  bool is_free_for(const Copy& copy, ValueId id) const {
    return last_read_[at(copy.leaf)] < program_.value(id).producer &&
           last_read_[at(id)] <= copy.update;
  }

  // Places values made of gradients in the memory of those gradients' copies, if they lie alike.
  void place_gradients() {
    std::map<ValueId, std::vector<Copy>> by_value;
    for (const Copy& copy : copies_) by_value[base(copy.gradient)].push_back(copy);
    for (auto& [value, copies] : by_value) {
      const auto begin = [&](const Copy& copy) {
        return program_.value(copy.gradient).layout.offset;
      };
      std::ranges::sort(copies, {}, begin);
      if (is_movable(value) && lie_alike(value, copies)) {
        out_[value] = copies.front().leaf;
        for (const Copy& copy : copies) taken_.insert(copy.leaf);
      }
    }
  }

  // True if the copies lie side by side in the order in which their gradients fill `value`.
  bool lie_alike(ValueId value, const std::vector<Copy>& copies) const {
    const BlockPart& first = program_.value(copies.front().leaf).part;
    std::int64_t count = 0;
    for (const Copy& copy : copies) {
      const Value& leaf = program_.value(copy.leaf);
      const Value& gradient = program_.value(copy.gradient);
      const bool is_beside =
          copies.size() == 1 || (!leaf.part.block.empty() && leaf.part.block == first.block &&
                                 leaf.part.offset - first.offset == count);
      if (!is_beside || gradient.layout.offset != count || gradient.type != leaf.type ||
          !is_contiguous(gradient.type.shape, gradient.layout.strides) ||
          !is_free_for(copy, value)) {
        return false;
      }
      count += leaf.type.count();
    }
    return count == program_.type(value).count();
  }

  // Places into each remaining copy the longest-lived of the other values that fit into it.
  void place_others() {
    std::map<std::int64_t, std::vector<ValueId>> by_count;
    for (ValueId id = 0; at(id) < program_.values.size(); ++id) {
      const Value& v = program_.value(id);
      if (v.producer != kNoNode && is_low_precision(v.type.dtype) && !out_.contains(id) &&
          is_movable(id)) {
        by_count[v.type.count()].push_back(id);
      }
    }
    for (const Copy& copy : copies_) {
      if (taken_.contains(copy.leaf)) continue;
      const Type& type = program_.type(copy.leaf);
      ValueId best = kNoValue;
      NodeId longest = kNoNode;
      for (ValueId id : by_count[type.count()]) {
        const NodeId length = last_read_[at(id)] - program_.value(id).producer;
        const bool fits = program_.type(id) == type && !out_.contains(id) &&
                          is_free_for(copy, id) && last_read_[at(id)] != copy.update;
        if (fits && length > longest) {
          best = id;
          longest = length;
        }
      }
      if (best != kNoValue) out_[best] = copy.leaf;
    }
  }

  const Program& program_;
  std::vector<NodeId> last_read_;         // by base value; without the updates that overwrite
  std::set<ValueId> elsewhere_;           // parts of assemblies, which may be written there
  std::map<ValueId, ValueId> new_value_;  // by leaf
  std::vector<Copy> copies_;
  std::map<ValueId, NodeId> update_of_;  // by leaf
  std::set<ValueId> taken_;              // leaves
  std::map<ValueId, ValueId> out_;
};

}  // namespace

std::map<ValueId, ValueId> places_in_copies(const Program& program) {
  return Places(program).run();
}

}  // namespace tracestep

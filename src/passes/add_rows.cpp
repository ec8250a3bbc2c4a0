// Products whose rows are added to leaves that lie side by side, as one node.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

using Members = std::vector<NodeId>;  // products, in the order of the leaves

class AddRows {
 public:
  explicit AddRows(const Program& program)
      : program_(program),
        sum_(find_op("matmul_add")),
        scaled_sum_(find_op("scaled_matmul_add")),
        readers_(program),
        r_(program, "epilogue") {
    std::map<std::string, Members> alike;
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (is_candidate(id)) alike[key_of(id)].push_back(id);
    }
    for (auto& [key, members] : alike) {
      std::ranges::sort(members, {}, [&](NodeId id) { return part_of(id).offset; });
      if (!follow(members)) continue;
      const NodeId last = std::ranges::max(members);
      if (!may_stand_at(last, members)) continue;
      for (const NodeId id : members) replaced_.try_emplace(id, last);
      groups_.emplace(last, std::move(members));
    }
  }

  Program run() {
    if (groups_.empty()) return program_;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (const auto group = groups_.find(id); group != groups_.end()) {
        emit(group->second);
      } else if (!replaced_.contains(id)) {
        r_.copy(node(id));
      }
    }
    return remove_dead_nodes(r_.finish());
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  const Value& operand(NodeId id, std::size_t i) const {
    return program_.value(node(id).inputs[i]);
  }
  const Value& addend(NodeId id) const { return program_.value(node(id).inputs.back()); }
  const BlockPart& part_of(NodeId id) const { return addend(id).part; }
  // Returns the axis of the first operand whose elements become rows of the result.
  int rows_axis(NodeId id) const {
    return node(id).op == &sum_ && node(id).attrs.flag("transpose_a") ? 1 : 0;
  }

  bool is_candidate(NodeId id) const {
    const bool is_sum = node(id).op == &sum_ || node(id).op == &scaled_sum_;
    if (!is_sum || node(id).outputs.size() != 1 || operand(id, 0).type.shape.rank() != 2)
      return false;
    const Value &a = operand(id, 0), &c = addend(id);
    const Value& base = program_.value(a.layout.base);
    return c.leaf != LeafKind::kNone && !c.part.block.empty() && a.layout.strides[1] == 1 &&
           a.layout.strides[0] >= a.type.shape[1] && a.type.count() > 0 && c.type.count() > 0 &&
           base.type.count() % a.layout.strides[0] == 0 &&
           is_contiguous(base.type.shape, base.layout.strides);
  }

  // Returns a key, equal for products that one node can add: parts of one tensor, and of one block.
  std::string key_of(NodeId id) const {
    const Node& n = node(id);
    const Value& a = operand(id, 0);
    std::string out =
        fmt::format("{},{},{},{},{}", n.op->name, a.layout.base, a.layout.strides.str(),
                    part_of(id).block, static_cast<int>(n.origin().phase));
    for (std::size_t i = 1; i + 1 < n.inputs.size(); ++i) out += fmt::format(",{}", n.inputs[i]);
    for (const auto& [name, value] : node(id).attrs.entries())
      out += fmt::format(",{}={}", name, print(value));
    return out;
  }

  // True if the members' operands are neighbours in one tensor, and their leaves in one block.
  bool follow(const Members& members) const {
    if (members.size() < 2) return false;
    const NodeId first = members.front();
    const int axis = rows_axis(first);
    std::int64_t rows = 0, count = 0;
    for (const NodeId id : members) {
      const Value& a = operand(id, 0);
      const std::int64_t offset = operand(first, 0).layout.offset + rows * a.layout.strides[axis];
      const bool follows = a.layout.offset == offset &&
                           part_of(id).offset == part_of(first).offset + count &&
                           a.type.shape[1 - axis] == operand(first, 0).type.shape[1 - axis];
      if (!follows) return false;
      rows += a.type.shape[axis];
      count += addend(id).type.count();
    }
    const Value& a = operand(first, 0);
    const std::int64_t width = a.layout.strides[0];
    return a.layout.offset % width + (axis == 1 ? rows : a.type.shape[1]) <= width;
  }

  // True if all members may run where the last of them stands: nothing before it overwrites what
  // they read, or reads their results.
  bool may_stand_at(NodeId last, const Members& members) const {
    return std::ranges::all_of(members, [&](NodeId id) {
      const ValueId result = node(id).outputs[0];
      return !is_overwritten(id, last) &&
             std::ranges::all_of(readers_.nodes[at(result)],
                                 [&](NodeId reader) { return reader > last; });
    });
  }

  // True if a node up to `last`, other than product `id`, updates a leaf that this product reads.
  bool is_overwritten(NodeId id, NodeId last) const {
    return std::ranges::any_of(program_.updates, [&](const Update& u) {
      const NodeId by = program_.value(u.value).producer;
      if (by == kNoNode || by == id || by > last) return false;
      return std::ranges::any_of(node(id).inputs, [&](ValueId input) {
        const std::vector<ValueId> leaves = leaves_of(program_, input);
        return std::ranges::find(leaves, u.leaf) != leaves.end();
      });
    });
  }

  // Returns the first operands of all members, as one view of the tensor that they are parts of.
  Val whole(const Members& members) {
    const NodeId first = members.front();
    const Value& a = operand(first, 0);
    const Value& base = program_.value(a.layout.base);
    const std::int64_t width = a.layout.strides[0], height = base.type.count() / width;
    const int axis = rows_axis(first);
    std::int64_t rows = 0;
    for (const NodeId id : members) rows += operand(id, 0).type.shape[axis];
    const std::int64_t row = a.layout.offset / width, column = a.layout.offset % width;
    const std::int64_t high = axis == 0 ? rows : a.type.shape[0],
                       wide = axis == 1 ? rows : a.type.shape[1];
    Val out = ops::reshape(r_.map(a.layout.base), {height, width});
    if (high != height) out = ops::slice(out, 0, row, row + high);
    return wide == width ? out : ops::slice(out, 1, column, column + wide);
  }

  void emit(const Members& members) {
    std::vector<const Node*> nodes;
    for (const NodeId id : members) nodes.push_back(&node(id));
    const auto guard = r_.builder().like(nodes);
    r_.builder().set_made_by("epilogue");
    const Node& first = *nodes.front();
    std::vector<Val> operands = r_.inputs(first);
    operands.front() = whole(members);
    operands.pop_back();
    for (const Node* n : nodes) operands.push_back(r_.map(n->inputs.back()));
    const OpDef& op = first.op == &sum_ ? find_op("matmul_add_rows") : scaled_sum_;
    const std::vector<Val> results = r_.builder().call(op, operands, first.attrs);
    for (std::size_t i = 0; i < nodes.size(); ++i) r_.replace(*nodes[i], {results[i]});
  }

  const Program& program_;
  const OpDef &sum_, &scaled_sum_;
  const Readers readers_;
  Rewriter r_;
  std::map<NodeId, NodeId> replaced_;  // by member: the last of its group
  std::map<NodeId, Members> groups_;   // by the last member
};

}  // namespace

Program add_rows(const Program& program, const std::function<bool(const OpDef&)>& has_kernel) {
  return has_kernel(find_op("matmul_add_rows")) ? AddRows(program).run() : program;
}

}  // namespace tracestep

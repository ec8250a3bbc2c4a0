#include "passes/fuse_regions.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analysis/fused_body.h"
#include "base/indexed.h"
#include "ir/builder.h"

namespace tracestep {
namespace {

// The most operands and results of a region, and the most nodes; larger kernels gain nothing.
constexpr std::size_t kMostOperands = 24;
constexpr std::size_t kMostNodes = 64;

}  // namespace

Regions::Regions(const Program& program, bool with_updates)
    : program_(program),
      with_updates_(with_updates),
      readers_(program),
      region_of_(program.nodes.size(), -1),
      spans_(program.nodes.size(), 0) {
  find_successors();
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!may_join(program.nodes[i])) continue;
    region_of_[i] = static_cast<int>(regions_.size());
    regions_.push_back({static_cast<NodeId>(i)});
  }
}

void Regions::grow() {
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    if (region_of_[i] < 0) continue;
    for (ValueId id : program_.nodes[i].inputs) {
      const NodeId maker = computed_by(id);
      if (maker != kNoNode) try_join(region_of(maker), region_of_[i]);
    }
  }
  join_siblings();
}

// Returns the node that computed the value, or what the value is a view of; kNoNode: a leaf.
NodeId Regions::computed_by(ValueId id) const {
  NodeId maker = program_.value(id).producer;
  while (maker != kNoNode && program_.node(maker).op->is_view()) {
    maker = program_.value(program_.node(maker).inputs[0]).producer;
  }
  return maker;
}

bool Regions::may_join(const Node& node) const {
  if (node.op->fusion == Fusion::kNone) return false;
  const Phase phase = node.origin().phase;
  if (phase == Phase::kOptimizer) return with_updates_ && may_join_updates(node);
  if (phase == Phase::kCommunication) return false;
  return std::ranges::all_of(node.outputs, [&](ValueId id) {
    const Value& v = program_.value(id);
    const bool updates =
        std::ranges::any_of(program_.updates, [&](const Update& u) { return u.value == id; });
    return v.role == Role::kNone && v.type.count() > 0 && !updates;
  });
}

// True if a node of the optimizer may join a region: it is no rotation, and no result is empty. If
// a leaf that the node updates is also summed, the buffer plan places the new value elsewhere.
bool Regions::may_join_updates(const Node& node) const {
  return node.op->fusion != Fusion::kPairs && std::ranges::all_of(node.outputs, [&](ValueId id) {
           return program_.type(id).count() > 0;
         });
}

// Lists in `successors_` what must run after each node: readers, through views too, and updates.
void Regions::find_successors() {
  successors_.resize(program_.nodes.size());
  before_.resize(program_.nodes.size());
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    for (ValueId id : program_.nodes[i].outputs) {
      for (NodeId reader : readers_.nodes[at(id)]) successors_[i].push_back(reader);
    }
  }
  std::map<ValueId, NodeId> updated_at;
  for (const Update& u : program_.updates) updated_at[u.leaf] = program_.value(u.value).producer;
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    for (ValueId id : program_.nodes[i].inputs) {
      const auto self = static_cast<NodeId>(i);
      for (ValueId leaf : leaves_of(program_, id)) {
        const auto found = updated_at.find(leaf);
        if (found == updated_at.end() || found->second <= self) continue;
        successors_[i].push_back(found->second);
        before_[at(found->second)].push_back(self);
      }
    }
  }
}

bool Regions::try_join(int a, int b) {
  if (a < 0 || b < 0 || a == b) return false;
  const Members &first = regions_[at(a)], &second = regions_[at(b)];
  const Node &x = program_.node(first.front()), &y = program_.node(second.front());
  if (x.origin().phase != y.origin().phase || x.epoch != y.epoch) return false;
  if (first.size() + second.size() > kMostNodes) return false;
  Members joined;
  std::ranges::merge(first, second, std::back_inserter(joined));
  if (leaves_and_returns(a, b)) return false;
  const FusedNode node = node_of(joined, results_of(joined));
  if (node.operands.size() + node.results.size() > kMostOperands) return false;
  if (!find_walk(node.body)) return false;
  for (NodeId id : second) region_of_[at(id)] = a;
  count_span(first, -1);
  count_span(second, -1);
  count_span(joined, 1);
  regions_[at(a)] = std::move(joined);
  regions_[at(b)].clear();
  return true;
}

void Regions::count_span(const Members& region, int change) {
  for (NodeId id = region.front(); id < region.back(); ++id) spans_[at(id)] += change;
}

// Returns a node N such that no path from N, or from a later node, leads back to `id` or a node
// before it: paths go forward, except inside a region, whose nodes run together.
NodeId Regions::point_of_no_return(NodeId id) const {
  while (spans_[at(id)] > 0) ++id;
  return id + 1;
}

// True if a path from the two regions returns to them through a node outside that is not a view:
// then no execution order exists for the joined region.
bool Regions::leaves_and_returns(int a, int b) const {
  const auto inside = [&](NodeId id) { return region_of_[at(id)] == a || region_of_[at(id)] == b; };
  std::vector<bool> seen(program_.nodes.size(), false);
  std::vector<NodeId> todo;
  const NodeId end = point_of_no_return(std::max(regions_[at(a)].back(), regions_[at(b)].back()));
  // `outside`: a node that is not a view has been passed.
  const auto visit = [&](auto&& self, NodeId from, bool outside) -> bool {
    for (NodeId next : successors_[at(from)]) {
      if (next >= end) continue;
      if (inside(next)) {
        if (outside) return true;
        continue;
      }
      if (program_.node(next).op->is_view() && !outside) {
        if (self(self, next, false)) return true;
      } else if (!seen[at(next)]) {
        seen[at(next)] = true;
        todo.push_back(next);
      }
    }
    return false;
  };
  for (int region : {a, b}) {
    for (NodeId id : regions_[at(region)]) {
      if (visit(visit, id, false)) return true;
    }
  }
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    const int region = region_of_[at(id)];
    if (region < 0) {
      if (visit(visit, id, true)) return true;
      continue;
    }
    for (NodeId member : regions_[at(region)]) {  // they run together
      seen[at(member)] = true;
      if (visit(visit, member, true)) return true;
    }
  }
  return false;
}

bool Regions::are_of_one_module(int a, int b) const {
  const auto path_of = [&](int region) -> const std::string& {
    return program_.node(regions_[at(region)].front()).origin().path;
  };
  return path_of(a) == path_of(b);
}

// Joins regions that read one operand, or views of it, as the rotations of q and k do: those that
// follow one another, and those of one module in any order. Regions of different modules may be far
// apart, and joining them would keep the operand alive for as long.
void Regions::join_siblings() {
  std::vector<std::vector<NodeId>> readers(program_.values.size());  // by base
  for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
    for (ValueId id : program_.nodes[i].inputs) {
      readers[at(program_.value(id).layout.base)].push_back(static_cast<NodeId>(i));
    }
  }
  for (const std::vector<NodeId>& siblings : readers) {
    std::vector<int> apart;  // regions of readers before
    for (NodeId reader : siblings) {
      const int region = region_of(reader);
      if (region < 0 || std::ranges::count(apart, region) > 0) continue;
      const auto joins = [&](int other) {
        return (other == apart.back() || are_of_one_module(other, region)) &&
               try_join(other, region);
      };
      if (std::ranges::none_of(apart, joins)) apart.push_back(region);
    }
  }
}

std::vector<ValueId> Regions::results_of(const Members& region) const {
  const auto is_member = [&](NodeId id) { return std::ranges::binary_search(region, id); };
  const auto escapes = [&](auto&& self, ValueId id) -> bool {
    if (readers_.at_end[at(id)]) return true;
    return std::ranges::any_of(readers_.nodes[at(id)], [&](NodeId reader) {
      const Node& node = program_.node(reader);
      return node.op->is_view() ? self(self, node.outputs[0]) : !is_member(reader);
    });
  };
  std::vector<ValueId> out;
  for (NodeId member : region) {
    for (ValueId id : program_.node(member).outputs) {
      if (escapes(escapes, id)) out.push_back(id);
    }
  }
  return out;
}

FusedNode Regions::node_of(const Members& region, const std::vector<ValueId>& wanted) const {
  FusedNode out;
  out.results = wanted;
  Builder b("body");
  std::map<ValueId, Val> made;
  const auto is_member = [&](NodeId id) {
    return id != kNoNode && std::ranges::binary_search(region, id);
  };
  const auto operand = [&](auto&& self, ValueId id) -> Val {
    if (const auto found = made.find(id); found != made.end()) return found->second;
    const NodeId maker = program_.value(id).producer;
    if (maker != kNoNode && program_.node(maker).op->is_view() && is_member(computed_by(id))) {
      const Node& view = program_.node(maker);
      const Val from = self(self, view.inputs[0]);
      return made[id] = b.copy(program_, view, {from}).front();
    }
    const std::string name = fmt::format("x{}", out.operands.size());
    out.operands.push_back(id);
    return made[id] = b.input(name, program_.type(id));
  };
  for (NodeId member : region) {
    const Node& node = program_.node(member);
    std::vector<Val> inputs;
    for (ValueId id : node.inputs) inputs.push_back(operand(operand, id));
    const std::vector<Val> results = b.copy(program_, node, inputs);
    for (std::size_t i = 0; i < results.size(); ++i) made[node.outputs[i]] = results[i];
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    b.output(fmt::format("y{}", i), operand(operand, wanted[i]));
  }
  out.body = b.finish();
  return out;
}

}  // namespace tracestep

#include "passes/fuse.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analysis/fused_body.h"
#include "ir/rewrite.h"
#include "passes/decompose.h"
#include "passes/simplify.h"

namespace tracestep {
namespace {

// The most operands and results of a region; kernels with more gain nothing from fusion.
constexpr std::size_t kMostOperands = 24;
constexpr std::size_t kMostNodes = 64;

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// --- ops on rows that also add up columns -------------------------------------------------------
// The fewest parts that a sum over all rows is split into; each part is one block.
constexpr std::int64_t kFewestParts = 256;

// How many rows a block sums; 1: there are too few rows to split the sum.
std::int64_t rows_per_part(std::int64_t rows) {
  std::int64_t out = 1;
  while (out < kMostRowsPerBlock && rows % (2 * out) == 0 && rows / (2 * out) >= kFewestParts) {
    out *= 2;
  }
  return out;
}

// Whether the node sums [..., W] over all dimensions but the last.
bool sums_columns(const Program& p, const Node& node) {
  if (node.op->fusion != Fusion::kRows || node.op->decompose) return false;
  const int rank = p.type(node.inputs[0]).shape.rank();
  Dims axes = node.attrs.ints("axes");
  std::sort(axes.begin(), axes.end());
  for (int i = 0; i < axes.rank(); ++i) {
    if (axes[i] != i) return false;
  }
  return rank > 1 && axes.rank() == rank - 1 && p.type(node.outputs[0]).shape.rank() == 1;
}

// Splits column sums into two steps: over the rows of a part, then over the parts. nullopt: there
// are no column sums, or too few rows.
std::optional<Program> in_two_steps(const Program& program) {
  Rewriter r(program, "fuse");
  bool changed = false;
  for (const Node& node : program.nodes) {
    const bool sums = sums_columns(program, node);
    const Type type = sums ? program.type(node.inputs[0]) : Type{DType::kF32, {1}};
    const std::int64_t width = type.shape.back(),
                       rows = type.count() / std::max<std::int64_t>(width, 1);
    const std::int64_t together = rows_per_part(rows);
    if (together == 1) {
      r.copy(node);
      continue;
    }
    changed = true;
    Builder& b = r.builder();
    const Val x = b.call1("reshape", {r.map(node.inputs[0])},
                          {{"shape", Dims{rows / together, together, width}}});
    const Val parts = b.call(*node.op, {x}, {{"axes", Dims{1}}}).front();
    r.replace(node, b.call(*node.op, {parts}, {{"axes", Dims{0}}}));
  }
  if (!changed) return std::nullopt;
  return r.finish();
}

// Whether the program without its final sums over parts is one walk.
bool walks_but_for_last_sums(Program parts) {
  for (Output& o : parts.outputs) {
    for (ValueId id = o.value;;) {
      const NodeId maker = parts.value(id).producer;
      if (maker == kNoNode || parts.node(maker).inputs.size() != 1) break;
      id = parts.node(maker).inputs[0];
      if (!sums_columns(parts, parts.node(maker))) continue;
      o.value = id;
      break;
    }
  }
  return find_walk(remove_dead_nodes(parts)).has_value();
}

// A decomposition of the node with column sums in two steps, so that it can be fused; nullopt: the
// node stays as it is.
std::optional<Program> parts_of(const Program& program, const Node& node) {
  if (node.op->fusion != Fusion::kRows || !node.op->decompose) return std::nullopt;
  Builder b("parts");
  std::vector<Val> inputs;
  for (ValueId id : node.inputs) {
    inputs.push_back(b.input(fmt::format("x{}", inputs.size()), program.type(id)));
  }
  const std::vector<Val> results = b.call(*node.op, inputs, node.attrs);
  for (std::size_t i = 0; i < results.size(); ++i) b.output(fmt::format("y{}", i), results[i]);
  const Program alone = b.finish();
  if (find_walk(alone)) return std::nullopt;
  const Program whole =
      decompose(alone, [](const OpDef& op) { return op.fusion == Fusion::kRows; });
  std::optional<Program> parts = in_two_steps(whole);
  if (!parts) return std::nullopt;
  parts = simplify(*parts);
  return walks_but_for_last_sums(*parts) ? parts : std::nullopt;
}

Program with_columns_in_parts(const Program& program) {
  Rewriter r(program, "fuse");
  for (const Node& node : program.nodes) {
    const std::optional<Program> parts = parts_of(program, node);
    if (!parts) {
      r.copy(node);
      continue;
    }
    const auto guard = r.from(node);
    r.replace(node, inline_program(r.builder(), *parts, r.inputs(node)));
  }
  return r.finish();
}

// The readers of a value: nodes (views included) and the end of the program.
struct Readers {
  std::vector<std::vector<NodeId>> nodes;
  std::vector<bool> at_end;

  explicit Readers(const Program& p) : nodes(p.values.size()), at_end(p.values.size(), false) {
    for (std::size_t i = 0; i < p.nodes.size(); ++i) {
      for (ValueId id : p.nodes[i].inputs) nodes[at(id)].push_back(static_cast<NodeId>(i));
    }
    for (const Output& o : p.outputs) at_end[at(o.value)] = true;
    for (const Update& u : p.updates) at_end[at(u.value)] = true;
  }
};

// --- which nodes form a region ------------------------------------------------------------------
using Members = std::vector<NodeId>;  // computing nodes, in program order

// A region as the node that will stand for it.
struct FusedNode {
  Program body{};
  std::vector<ValueId> operands;  // of the program, in the order of the body's leaves
  std::vector<ValueId> results;   // of the program, in the order of the body's outputs
};

class Regions {
 public:
  explicit Regions(const Program& program)
      : program_(program), readers_(program), region_of_(program.nodes.size(), -1) {
    find_successors();
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      if (!may_join(program.nodes[i])) continue;
      region_of_[i] = static_cast<int>(regions_.size());
      regions_.push_back({static_cast<NodeId>(i)});
    }
  }

  void grow() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (region_of_[i] < 0) continue;
      for (ValueId id : program_.nodes[i].inputs) {
        const NodeId maker = computed_by(id);
        if (maker != kNoNode) try_join(region_of(maker), region_of_[i]);
      }
    }
    join_siblings();
  }

  const std::vector<Members>& all() const { return regions_; }
  int region_of(NodeId id) const { return region_of_[at(id)]; }
  const Readers& readers() const { return readers_; }
  // Nodes that must run before `id` although it reads none of their results.
  const std::vector<NodeId>& before(NodeId id) const { return before_[at(id)]; }

  // The fused node of the region with the results `wanted`: values of its nodes, or views of them.
  FusedNode node_of(const Members& region, const std::vector<ValueId>& wanted) const;
  // The region's values that are read outside it.
  std::vector<ValueId> results_of(const Members& region) const;

 private:
  // The node that computed the value, or the base it is a view of; kNoNode: a leaf.
  NodeId computed_by(ValueId id) const {
    NodeId maker = program_.value(id).producer;
    while (maker != kNoNode && program_.node(maker).op->is_view()) {
      maker = program_.value(program_.node(maker).inputs[0]).producer;
    }
    return maker;
  }

  bool may_join(const Node& node) const {
    if (node.op->fusion == Fusion::kNone) return false;
    const Phase phase = node.origin().phase;
    if (phase != Phase::kForward && phase != Phase::kBackward) return false;
    return std::ranges::all_of(node.outputs, [&](ValueId id) {
      const Value& v = program_.value(id);
      const bool updates =
          std::ranges::any_of(program_.updates, [&](const Update& u) { return u.value == id; });
      return v.role == Role::kNone && v.type.count() > 0 && !updates;
    });
  }

  // Data flows through views too, and an update comes after all readers of the old value.
  void find_successors() {
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
        const auto found = updated_at.find(program_.value(id).layout.base);
        const auto self = static_cast<NodeId>(i);
        if (found == updated_at.end() || found->second == kNoNode || found->second <= self)
          continue;
        successors_[i].push_back(found->second);
        before_[at(found->second)].push_back(self);
      }
    }
  }

  bool try_join(int a, int b) {
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
    regions_[at(a)] = std::move(joined);
    regions_[at(b)].clear();
    return true;
  }

  // Whether a path from the two regions returns to them through a node outside that is not a view:
  // then no execution order exists for the joined region.
  bool leaves_and_returns(int a, int b) const {
    const auto inside = [&](NodeId id) {
      return region_of_[at(id)] == a || region_of_[at(id)] == b;
    };
    std::vector<bool> seen(program_.nodes.size(), false);
    std::vector<NodeId> todo;
    // `outside`: a node that is not a view has been passed.
    const auto visit = [&](auto&& self, NodeId from, bool outside) -> bool {
      for (NodeId next : successors_[at(from)]) {
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

  // Regions that read the same operand, as the rotations of q and k do.
  void join_siblings() {
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      int last = -1;
      for (NodeId reader : readers_.nodes[v]) {
        const int region = region_of(reader);
        if (region < 0 || region == last) continue;
        if (last < 0 || !try_join(last, region)) last = region;
      }
    }
  }

  const Program& program_;
  Readers readers_;
  std::vector<std::vector<NodeId>> successors_;
  std::vector<std::vector<NodeId>> before_;  // of an update: who reads the old value
  std::vector<int> region_of_;               // by node; -1: it stays as it is
  std::vector<Members> regions_;
};

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
      const auto guard = b.like(view);
      return made[id] = b.call(*view.op, {from}, view.attrs).front();
    }
    const std::string name = fmt::format("x{}", out.operands.size());
    out.operands.push_back(id);
    return made[id] = b.input(name, program_.type(id));
  };
  for (NodeId member : region) {
    const Node& node = program_.node(member);
    std::vector<Val> inputs;
    for (ValueId id : node.inputs) inputs.push_back(operand(operand, id));
    const auto guard = b.like(node);
    const std::vector<Val> results = b.call(*node.op, inputs, node.attrs);
    for (std::size_t i = 0; i < results.size(); ++i) made[node.outputs[i]] = results[i];
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    b.output(fmt::format("y{}", i), operand(operand, wanted[i]));
  }
  out.body = b.finish();
  return out;
}

// --- results in the order of their reader -------------------------------------------------------
// A view that reads every element once.
bool rearranges(const Program& p, const Node& view) {
  if (!view.op->is_view() || p.type(view.outputs[0]).count() != p.type(view.inputs[0]).count()) {
    return false;
  }
  const std::vector<Type> types{p.type(view.inputs[0])}, results{p.type(view.outputs[0])};
  const Layout dense{kNoValue, 0, contiguous_strides(types[0].shape)};
  const auto layout = view.op->view({*view.op, view.attrs, types, results}, dense);
  return layout && !is_contiguous(results[0].shape, layout->strides);
}

// Follows the views after a result to the last one that changes the order of elements, if a reader
// after it would otherwise need a copy. Stops where a value has more than one reader.
ValueId in_readers_order(const Program& p, const Readers& readers, const Regions& regions,
                         int region, ValueId result) {
  const NodeId maker = p.value(result).producer;
  ValueId found = result, id = result;
  bool copied = false;
  while (!readers.at_end[at(id)]) {
    std::vector<NodeId> outside;
    for (NodeId reader : readers.nodes[at(id)]) {
      if (regions.region_of(reader) != region) outside.push_back(reader);
    }
    if (outside.size() != 1 || !p.node(outside[0]).op->is_view()) break;
    const Node& view = p.node(outside[0]);
    const bool is_of_phase = view.origin().phase == p.node(maker).origin().phase;
    if (!is_of_phase || p.type(view.outputs[0]).count() != p.type(id).count()) break;
    copied = copied || !makes_views(p, view);
    id = view.outputs[0];
    if (!copied && rearranges(p, view)) found = id;
  }
  for (NodeId reader : readers.nodes[at(id)]) {
    const Node& node = p.node(reader);
    for (std::size_t i = 0; i < node.inputs.size() && !node.op->is_view(); ++i) {
      const bool fits =
          node.inputs[i] != id || !node.op->accepts ||
          node.op->accepts(static_cast<int>(i), p.type(id), p.value(id).layout.strides);
      copied = copied || !fits;
    }
  }
  return copied ? found : result;
}

// --- the new program ----------------------------------------------------------------------------
class Fuser {
 public:
  explicit Fuser(const Program& program)
      : program_(program),
        regions_(program),
        rewriter_(program, "fuse"),
        done_(program.nodes.size(), false) {}

  Program run() {
    regions_.grow();
    for (const Members& region : regions_.all()) nodes_.push_back(fused_node(region));
    find_needed();
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      const FusedNode* node = node_for(id);
      // A region stands where its last node stood.
      if (node == nullptr || regions_.all()[at(regions_.region_of(id))].back() == id) emit(id);
    }
    return rewriter_.finish();
  }

 private:
  // The fused node that replaces the node's region; nullptr: the node stays.
  const FusedNode* node_for(NodeId id) const {
    const int region = regions_.region_of(id);
    if (region < 0 || nodes_[at(region)].results.empty()) return nullptr;
    return &nodes_[at(region)];
  }

  // Returns a node without results where fusing gains nothing.
  FusedNode fused_node(const Members& region) const {
    if (region.empty()) return {};
    const std::vector<ValueId> plain = regions_.results_of(region);
    std::vector<ValueId> ordered;
    for (ValueId id : plain) {
      const int self = regions_.region_of(region.front());
      ordered.push_back(in_readers_order(program_, regions_.readers(), regions_, self, id));
    }
    FusedNode out = regions_.node_of(region, ordered);
    if (ordered != plain && find_walk(out.body)) return out;
    if (region.size() < 2 || plain.empty()) return {};
    return ordered == plain ? out : regions_.node_of(region, plain);
  }

  // Leaves out views of values that no longer exist.
  void find_needed() {
    needed_.assign(program_.values.size(), false);
    for (const Output& o : program_.outputs) needed_[at(o.value)] = true;
    for (const Update& u : program_.updates) needed_[at(u.value)] = true;
    for (std::size_t r = 0; r < nodes_.size(); ++r) {
      const FusedNode& node = nodes_[r];
      if (node.results.empty()) continue;
      for (ValueId id : node.operands) needed_[at(id)] = true;
      for (ValueId id : node.results) made_by_[id] = regions_.all()[r].back();
    }
    for (std::size_t i = program_.nodes.size(); i-- > 0;) {
      const Node& node = program_.nodes[i];
      if (node_for(static_cast<NodeId>(i)) != nullptr) continue;
      const bool read = !node.op->is_view() ||
                        (needed_[at(node.outputs[0])] && !made_by_.contains(node.outputs[0]));
      for (ValueId id : node.inputs) needed_[at(id)] = needed_[at(id)] || read;
    }
  }

  void emit_producers(const std::vector<ValueId>& values) {
    for (ValueId id : values) {
      const auto fused = made_by_.find(id);
      const NodeId maker = fused != made_by_.end() ? fused->second : program_.value(id).producer;
      if (maker != kNoNode) emit(maker);
    }
  }

  void emit(NodeId id) {
    if (done_[at(id)]) return;
    const Node& node = program_.node(id);
    if (const FusedNode* fused = node_for(id)) return emit_region(*fused, regions_.region_of(id));
    done_[at(id)] = true;
    const bool replaced = node.op->is_view() && made_by_.contains(node.outputs[0]);
    if (replaced || (node.op->is_view() && !needed_[at(node.outputs[0])])) return;
    for (NodeId other : regions_.before(id)) emit(other);
    emit_producers(node.inputs);
    rewriter_.copy(node);
  }

  void emit_region(const FusedNode& fused, int region) {
    const Members& members = regions_.all()[at(region)];
    for (NodeId id : members) done_[at(id)] = true;
    emit_producers(fused.operands);
    const auto guard = rewriter_.from(example_of(members));
    std::vector<Val> operands;
    for (ValueId id : fused.operands) operands.push_back(rewriter_.map(id));
    const auto body = std::make_shared<const Program>(fused.body);
    const std::vector<Val> results =
        rewriter_.builder().call(find_op("fused"), operands, {{"body", Region(body)}});
    for (std::size_t i = 0; i < results.size(); ++i) {
      rewriter_.replace(fused.results[i], results[i]);
    }
  }

  // A node with the origins of all members, that of the member with the most work first.
  Node example_of(const Members& members) const {
    Members ordered = members;
    std::ranges::stable_sort(ordered, std::greater(),
                             [&](NodeId id) { return program_.node(id).op->fusion; });
    Node out = program_.node(ordered.front());
    for (NodeId id : ordered) {
      for (const Origin& origin : program_.node(id).origins) {
        const bool known = std::ranges::any_of(out.origins, [&](const Origin& other) {
          return other.path == origin.path && other.phase == origin.phase;
        });
        if (!known) out.origins.push_back(origin);
      }
    }
    return out;
  }

  const Program& program_;
  Regions regions_;
  Rewriter rewriter_;
  std::vector<FusedNode> nodes_;       // by region
  std::map<ValueId, NodeId> made_by_;  // results of fused nodes: the last node of the region
  std::vector<bool> needed_;           // by value: read by what stays, or a fused node's operand
  std::vector<bool> done_;             // by node
};

}  // namespace

Program fuse(const Program& program) {
  const Program in_parts = with_columns_in_parts(program);
  return Fuser(in_parts).run();
}

}  // namespace tracestep

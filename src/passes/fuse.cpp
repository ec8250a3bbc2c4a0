#include "passes/kernel_passes.h"

#include <algorithm>
#include <map>

#include "analysis/fused_body.h"
#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"
#include "passes/fuse_regions.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// --- results in the order of their reader -------------------------------------------------------
// True for a view that reads every element once, in another order.
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
// after it would otherwise need a copy; else returns `result`. Stops at a second reader of a value.
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

// --- views before the ops whose results they rearrange -------------------------------------------
// Finds elementwise ops, such as adapters' sums, from which views (and a cast) lead to a rotation.
// Moves the views before the op: a rotation works on heads; an op on whole rows cannot join it.
class ViewsBeforeSums {
 public:
  explicit ViewsBeforeSums(const Program& program)
      : program_(program), readers_(program), r_(program, "fuse") {}

  Program run() {
    for (const Node& node : program_.nodes) {
      if (node.op->fusion == Fusion::kElementwise && !node.op->is_view()) {
        if (std::vector<NodeId> views = views_behind(node); !views.empty())
          moved_.emplace(node.outputs[0], std::move(views));
      }
    }
    if (moved_.empty()) return program_;
    std::vector<bool> is_moved(program_.nodes.size(), false);
    for (const auto& [id, views] : moved_) {
      for (const NodeId view : views) is_moved[at(view)] = true;
    }
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (is_moved[i]) continue;
      const Node& node = program_.nodes[i];
      const auto views = moved_.find(node.outputs[0]);
      if (views == moved_.end())
        r_.copy(node);
      else
        emit(node, views->second);
    }
    return r_.finish();
  }

 private:
  // Returns the views between the node's result and a rotation, in order; none if something else
  // reads the result, or if the views keep the order of elements.
  std::vector<NodeId> views_behind(const Node& node) const {
    std::vector<NodeId> out;
    const Shape& shape = program_.type(node.outputs[0]).shape;
    const bool has_one_shape =
        node.outputs.size() == 1 && std::ranges::all_of(node.inputs, [&](ValueId id) {
          return program_.type(id).shape == shape;
        });
    if (!has_one_shape || node.inputs.size() < 2) return {};
    bool changes_order = false;
    NodeId next = readers_.only(node.outputs[0]);
    for (; next != kNoNode && program_.node(next).op->is_view(); next = reader_of(next)) {
      const Node& view = program_.node(next);
      if (program_.type(view.outputs[0]).count() != shape.product()) return {};
      changes_order = changes_order || rearranges(program_, view);
      out.push_back(next);
    }
    if (next != kNoNode && program_.node(next).op->only_converts) next = reader_of(next);
    const bool is_rotated = next != kNoNode && program_.node(next).op->fusion == Fusion::kPairs;
    return is_rotated && changes_order ? out : std::vector<NodeId>();
  }
  NodeId reader_of(NodeId id) const { return readers_.only(program_.node(id).outputs[0]); }

  void emit(const Node& node, const std::vector<NodeId>& views) {
    std::vector<Val> inputs = r_.inputs(node);
    for (const NodeId id : views) {
      const Node& view = program_.node(id);
      const auto guard = r_.from(view);
      for (Val& x : inputs) x = r_.builder().call(*view.op, {x}, view.attrs).front();
    }
    const auto guard = r_.from(node);
    r_.replace(program_.node(views.back()),
               {r_.builder().call(*node.op, inputs, node.attrs).front()});
  }

  const Program& program_;
  const Readers readers_;
  Rewriter r_;
  std::map<ValueId, std::vector<NodeId>> moved_;  // by the result of a sum
};

// Writes the program, with a fused node in place of each region (passes/fuse_regions.h).
class Fuser {
 public:
  Fuser(const Program& program, bool with_updates)
      : program_(program),
        regions_(program, with_updates),
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
  // Returns the fused node that replaces the node's region; nullptr: the node stays.
  const FusedNode* node_for(NodeId id) const {
    const int region = regions_.region_of(id);
    if (region < 0 || nodes_[at(region)].results.empty()) return nullptr;
    return &nodes_[at(region)];
  }

  // Returns the fused node of a region; without results if fusing the region gains nothing.
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
    if (plain.empty() || (region.size() < 2 && !is_copied_into_assembly(plain))) return {};
    return ordered == plain ? out : regions_.node_of(region, plain);
  }

  // True if the one result is part of an assembly, where a fused node can write it, not its own op.
  bool is_copied_into_assembly(const std::vector<ValueId>& results) const {
    const NodeId reader = regions_.readers().only(results.front());
    const bool is_part =
        results.size() == 1 && reader != kNoNode && program_.node(reader).op->is_assembly();
    return is_part && !program_.node(program_.value(results.front()).producer).op->writes;
  }

  // Marks in `needed_` the values that the new program reads; other views are left out.
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
    for (NodeId id : members) {
      for (NodeId other : regions_.before(id)) emit(other);
    }
    emit_producers(fused.operands);
    const auto guard = rewriter_.from(example_of(members));
    std::vector<Val> operands;
    for (ValueId id : fused.operands) operands.push_back(rewriter_.map(id));
    const auto body = std::make_shared<const Program>(fused.body);
    Attrs attrs{{"body", Region(body)}};
    const bool is_update = program_.node(members.front()).origin().phase == Phase::kOptimizer;
    if (is_update) attrs.set("in_place", true);
    const std::vector<Val> results = rewriter_.builder().call(op_of_fused_nodes(), operands, attrs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      rewriter_.replace(fused.results[i], results[i]);
    }
  }

  // Returns a node with the origins of all members, that of the member with the most work first.
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
        if (!known) out.origins.edit().push_back(origin);
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

const OpDef& op_of_fused_nodes() {
  return find_op("fused");
}

Program fuse(const Program& program, bool with_updates) {
  // The gradients of frozen gains are sums that nothing reads.
  const Program in_order = ViewsBeforeSums(program).run();
  const Program in_parts = remove_dead_nodes(merge_column_sums(split_column_sums(in_order)));
  return Fuser(in_parts, with_updates).run();
}

// True if nodes are fused, for which the device needs a compiler of kernels at run time.
bool fuses(const PassOptions& o) {
  return o.has_kernel(op_of_fused_nodes());
}

// True if updates are fused: Muon's, since those of other optimizers are one launch anyway. False
// with lanes or ranks, where updates do not run in program order, after all readers of their leaf.
bool fuses_updates(const PassOptions& o) {
  return o.run.optimizer.kind == OptimizerKind::kMuon && o.updates_at_end() &&
         !o.run.parallel.is_on() && !has_optimizer(o.run.offload);
}

bool will_fuse(const PassOptions& o) {
  const bool is_on = o.run.compile_passes ? o.names("fuse") : has_arena(o.run.executor);
  return is_on && !o.context.disabled.contains("fuse") && fuses(o);
}

}  // namespace tracestep

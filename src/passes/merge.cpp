#include "passes/memory_passes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/merge_groups.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// Writes the program with merged products.
class Merge {
 public:
  explicit Merge(const Program& program)
      : program_(program), rewriter_(program, "merge"), merges_(find_merges(program)) {}

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      emit(id);
      emit_waiting();
    }
    TRACESTEP_CHECK(waiting_.empty(), "merge: {} nodes wait for a merged product", waiting_.size());
    return rewriter_.finish();
  }

  // Returns, for each merged product with a block, the slices of its result, in the new program.
  const std::vector<std::vector<ValueId>>& forward_slices() const { return slices_; }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  ValueId operand(const MergedProduct& m, int i) const { return node(m.node).inputs[at(i)]; }

  // True if the new program has all operands of the node, so that it can be emitted.
  bool is_ready(const Node& n) const {
    return std::ranges::all_of(n.inputs, [&](ValueId id) { return rewriter_.has(id); });
  }

  // Emits the node, or the merged node in its place; a node without all its operands waits.
  void emit(NodeId id) {
    if (const auto found = merges_.with_blocks.find(id); found != merges_.with_blocks.end()) {
      emit_product_with_block(found->second);
    } else if (const auto sum = merges_.sums.find(id); sum != merges_.sums.end()) {
      emit_sum(id, sum->second);
    } else if (const auto group = merges_.of_assemblies.find(id);
               group != merges_.of_assemblies.end()) {
      emit_product_of_assembly(group->second);
    } else if (!merges_.replaced[at(id)]) {
      if (!emit_copy(id)) waiting_.push_back(id);
    }
  }

  void emit_waiting() {
    std::erase_if(waiting_, [&](NodeId id) { return emit_copy(id); });
  }

  // Copies a node, with slices in place of the operands that an assembly holds. Returns false, and
  // copies nothing, if an operand is not there yet.
  bool emit_copy(NodeId id) {
    const auto slices = merges_.read_slices.find(id);
    if (slices == merges_.read_slices.end()) {
      if (!is_ready(node(id))) return false;
      rewriter_.copy(node(id));
      return true;
    }
    std::vector<Val> inputs;
    for (ValueId input : node(id).inputs) {
      const std::optional<Val> found = slice_or_value(input, slices->second);
      if (!found) return false;
      inputs.push_back(*found);
    }
    rewriter_.copy(node(id), inputs);
    return true;
  }
  // Returns the new value of `id`, or its slice of one of the `assemblies`; nullopt: not there yet.
  std::optional<Val> slice_or_value(ValueId id, const std::vector<AssemblyId>& assemblies) {
    const auto found = merges_.assembled.find(id);
    const bool is_slice = found != merges_.assembled.end() &&
                          std::ranges::find(assemblies, found->second) != assemblies.end();
    if (!is_slice) return rewriter_.has(id) ? std::optional(rewriter_.map(id)) : std::nullopt;
    const std::vector<MergedProduct>& members = products_of(found->second).products.members;
    const bool is_whole = std::ranges::all_of(
        members, [&](const MergedProduct& m) { return rewriter_.has(operand(m, m.shared())); });
    if (!is_whole) return std::nullopt;
    return slice_of(found->second, id);
  }
  // Returns the slice of the assembly that holds the operand `part`.
  Val slice_of(const AssemblyId& assembly, ValueId part) {
    Val& made = part_slices_[part];
    if (made) return made;
    const Val whole = assembly_of(assembly);
    const SummedProducts& sum = products_of(assembly);
    std::int64_t start = 0;
    for (const MergedProduct& m : sum.products.members) {
      const ValueId id = operand(m, m.shared());
      const std::int64_t stop = start + program_.type(id).shape[sum.summed_axis];
      if (id == part) {
        const auto guard = rewriter_.from(node(m.node));
        made = ops::slice(whole, sum.summed_axis, start, stop);
      }
      start = stop;
    }
    return made;
  }
  const SummedProducts& products_of(const AssemblyId& id) const {
    return merges_.sums.at(id.first).groups[id.second];
  }

  // Returns a guard: while it exists, new nodes take the origins of the members.
  Builder::Guard like(const std::vector<MergedProduct>& members) {
    std::vector<NodeId> nodes;
    for (const MergedProduct& m : members) nodes.push_back(m.node);
    return like(nodes);
  }
  Builder::Guard like(const std::vector<NodeId>& members) {
    std::vector<const Node*> nodes;
    for (NodeId id : members) nodes.push_back(&node(id));
    auto guard = rewriter_.builder().like(nodes);
    rewriter_.builder().set_made_by("merge");
    return guard;
  }

  // Returns the memory block that the members' weights, or their operands number `index`, make up;
  // if the products read narrow copies, the cast of the block.
  Val block_of(const MergeGroup& group) { return block_of(group, group.members.front().merged); }
  Val block_of(const MergeGroup& group, int index) {
    std::vector<Val> parts;
    std::vector<const Node*> casts;
    for (const MergedProduct& m : group.members) {
      const ValueId id = operand(m, index), weight = weight_behind(program_, id);
      parts.push_back(rewriter_.map(weight));
      if (id != weight) casts.push_back(&node(program_.value(id).producer));
    }
    if (casts.empty()) return rewriter_.builder().call1("block", parts);
    Val& made = narrow_blocks_[casts.front()];
    if (!made) {
      const auto guard = rewriter_.builder().like(casts);
      rewriter_.builder().set_made_by("merge");
      const Val block = rewriter_.builder().call1("block", parts);
      made = rewriter_.builder().call(*casts.front()->op, {block}, casts.front()->attrs).front();
      rewriter_.builder().set_role(made, Role::kWeightCast);
    }
    return made;
  }

  Val product(const MergedProduct& like, Val merged, Val shared, Val bias = {}) {
    const Node& n = node(like.node);
    std::vector<Val> inputs(2);
    inputs[at(like.merged)] = merged;
    inputs[at(like.shared())] = shared;
    if (bias) inputs.push_back(bias);
    return rewriter_.builder().call(*n.op, inputs, n.attrs).front();
  }

  // Replaces the results of the nodes by slices of `whole` along `axis`. If all of them have one
  // role, `whole` has it too.
  void replace_by_slices(const std::vector<NodeId>& nodes, Val whole, int axis) {
    const Role role = program_.value(node(nodes.front()).outputs[0]).role;
    const bool is_common = std::ranges::all_of(
        nodes, [&](NodeId id) { return program_.value(node(id).outputs[0]).role == role; });
    if (is_common) rewriter_.builder().set_role(whole, role);
    std::int64_t start = 0;
    for (NodeId id : nodes) {
      const auto guard = rewriter_.from(node(id));
      const std::int64_t stop = start + program_.type(node(id).outputs[0]).shape[axis];
      rewriter_.replace(
          node(id),
          {rewriter_.builder().call1(
              "slice", {whole}, {{"axis", std::int64_t{axis}}, {"start", start}, {"stop", stop}})});
      start = stop;
    }
  }

  // Replaces products by slices of `whole`, along the axis that comes from their merged operands.
  void replace_by_slices(const std::vector<MergedProduct>& members, Val whole) {
    const int rank = whole.shape().rank();
    std::vector<NodeId> nodes;
    for (const MergedProduct& m : members) nodes.push_back(m.node);
    replace_by_slices(nodes, whole, members.front().merged == 0 ? rank - 2 : rank - 1);
  }

  void emit_product_with_block(const MergeGroup& group) {
    const MergedProduct& first = group.members.front();
    Val whole;
    {
      const auto guard = like(group.members);
      const Val bias = has_bias(node(first.node)) ? block_of(group, kBias) : Val{};
      whole = product(first, block_of(group), rewriter_.map(operand(first, first.shared())), bias);
    }
    replace_by_slices(group.members, whole);
    slices_.emplace_back();
    for (const MergedProduct& m : group.members) {
      slices_.back().push_back(rewriter_.map(node(m.node).outputs[0]).id);
    }
  }

  // Returns the assembly of the non-block operands of a sum's products, made on the first call.
  Val assembly_of(const AssemblyId& id) {
    Val& made = assemblies_[id];
    if (made) return made;
    const SummedProducts& sum = products_of(id);
    std::vector<Val> parts;
    for (const MergedProduct& m : sum.products.members) {
      parts.push_back(rewriter_.map(operand(m, m.shared())));
    }
    {
      const auto guard = like(sum.products.members);
      made =
          rewriter_.builder().call1("assemble", parts, {{"axis", std::int64_t{sum.summed_axis}}});
    }
    if (!sum.column_sums.empty()) emit_column_sums(sum.column_sums, made);
    return made;
  }

  // Replaces the sums of the parts' columns by slices of one sum of the assembly's columns.
  void emit_column_sums(const std::vector<NodeId>& sums, Val whole) {
    Val all;
    {
      const auto guard = like(sums);
      const Node& first = node(sums.front());
      Attrs attrs = first.attrs;
      Dims rows;
      for (int i = 0; i + 1 < whole.shape().rank(); ++i) rows.push_back(i);
      attrs.set("axes", rows);
      all = rewriter_.builder().call(*first.op, {whole}, attrs).front();
    }
    replace_by_slices(sums, all, 0);
  }

  // Replaces the members by products of slices of the assembly.
  void emit_products_of_parts(const MergeGroup& group, const AssemblyId& id) {
    const Val whole = assembly_of(id);
    const int axis = products_of(id).summed_axis;
    std::int64_t start = 0;
    for (const MergedProduct& m : group.members) {
      const auto guard = rewriter_.from(node(m.node));
      const std::int64_t stop = start + program_.type(operand(m, m.merged)).shape[axis];
      const Val part = ops::slice(whole, axis, start, stop);
      rewriter_.replace(node(m.node), {product(m, part, rewriter_.map(operand(m, m.shared())))});
      start = stop;
    }
  }

  void emit_product_of_assembly(const MergeGroup& group) {
    const MergedProduct& first = group.members.front();
    const AssemblyId assembly = merges_.assembled.at(operand(first, first.merged));
    if (group.is_apart) return emit_products_of_parts(group, assembly);
    Val whole = assembly_of(assembly);
    {
      const auto guard = like(group.members);
      whole = product(first, whole, rewriter_.map(operand(first, first.shared())));
    }
    replace_by_slices(group.members, whole);
  }

  Val emit_chain(Val x, const std::vector<NodeId>& chain) {
    for (NodeId step : chain) {
      x = rewriter_.builder().call(*node(step).op, {x}, node(step).attrs).front();
    }
    return x;
  }

  void emit_sum(NodeId id, const MergedSum& sum) {
    std::vector<Val> terms;
    for (std::size_t i = 0; i < sum.groups.size(); ++i) {
      const MergeGroup& group = sum.groups[i].products;
      const MergedProduct& first = group.members.front();
      const Val other = assembly_of({id, i});
      const auto guard = like(group.members);
      terms.push_back(emit_chain(product(first, block_of(group), other), first.chain));
    }
    const Node& root = node(id);
    const auto guard = rewriter_.from(root);
    for (const SumTerm& term : sum.rest) {
      terms.push_back(emit_chain(rewriter_.map(term.value), term.chain));
    }
    Val x = terms.front();
    for (std::size_t i = 1; i < terms.size(); ++i) {
      x = rewriter_.builder().call(*root.op, {x, terms[i]}, root.attrs).front();
    }
    rewriter_.replace(root, {x});
  }

  const Program& program_;
  Rewriter rewriter_;
  const Merges merges_;
  std::map<const Node*, Val> narrow_blocks_;  // by the cast of the first part
  std::map<AssemblyId, Val> assemblies_;
  std::map<ValueId, Val> part_slices_;  // by the operand of an assembly
  std::vector<NodeId> waiting_;         // nodes behind which a merged product will stand
  std::vector<std::vector<ValueId>> slices_;
};

// --- the values that backward keeps -------------------------------------------------------------
// Returns those of `slice` and of its views that something other than a view reads.
std::vector<ValueId> ends_of(const Program& p, const Readers& readers, ValueId slice) {
  std::vector<ValueId> out;
  bool is_end = readers.at_end[at(slice)];
  for (NodeId reader : readers.nodes[at(slice)]) {
    const Node& node = p.node(reader);
    if (!makes_views(p, node)) {
      is_end = true;
      continue;
    }
    const std::vector<ValueId> more = ends_of(p, readers, node.outputs[0]);
    out.insert(out.end(), more.begin(), more.end());
  }
  if (is_end) out.push_back(slice);
  return out;
}

bool is_saved(const Program& p, const Readers& readers, ValueId id) {
  return std::ranges::any_of(readers.nodes[at(id)], [&](NodeId reader) {
    return p.node(reader).origin().phase == Phase::kBackward && !makes_views(p, p.node(reader));
  });
}

// True if all readers accept the value's strides; otherwise `materialize` makes a copy anyway.
bool is_read_as_it_is(const Program& p, const Readers& readers, ValueId id) {
  const Value& v = p.value(id);
  return std::ranges::all_of(readers.nodes[at(id)], [&](NodeId reader) {
    const Node& node = p.node(reader);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool reads = node.inputs[i] == id && node.op->accepts;
      if (reads && !node.op->accepts(static_cast<int>(i), v.type, v.layout.strides)) return false;
    }
    return true;
  });
}

// Returns the values that backward shall keep as copies, so that it does not keep the whole
// results of the forward products in `merged`, each given by its slices.
std::vector<ValueId> values_to_copy(const Program& p,
                                    const std::vector<std::vector<ValueId>>& merged,
                                    bool forward_alone) {
  const Readers readers(p);
  std::vector<ValueId> out;
  for (const std::vector<ValueId>& slices : merged) {
    std::vector<ValueId> saved;
    std::size_t slices_saved = 0;
    for (ValueId slice : slices) {
      const std::size_t before = saved.size();
      for (ValueId id : ends_of(p, readers, slice)) {
        if (is_saved(p, readers, id)) saved.push_back(id);
      }
      slices_saved += saved.size() > before ? 1 : 0;
    }
    if (slices_saved == slices.size()) continue;
    std::ranges::copy_if(saved, std::back_inserter(out), [&](ValueId id) {
      return forward_alone || is_read_as_it_is(p, readers, id);
    });
  }
  return out;
}

Program with_copies(const Program& program, const std::vector<ValueId>& values) {
  Rewriter r(program, "merge");
  for (const Node& node : program.nodes) {
    const Val out = r.copy(node).front();
    if (std::ranges::find(values, node.outputs[0]) == values.end()) continue;
    const auto guard = r.from(node);
    r.replace(node.outputs[0], r.builder().call1("copy", {out}));
  }
  return r.finish();
}

}  // namespace

Program merge(const Program& program, bool forward_alone) {
  Merge pass(program);
  Program out = pass.run();
  const std::vector<ValueId> values = values_to_copy(out, pass.forward_slices(), forward_alone);
  // Casts of single weights have no readers any more.
  return remove_dead_nodes(values.empty() ? out : with_copies(out, values));
}

Program merge(const Program& p, const PassOptions& o) {
  return merge(p, o.run.mode == Mode::kForward);
}

}  // namespace tracestep

#include "passes/merge.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "analysis/readers.h"
#include "ir/print.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// A product, one operand of which is merged with those of others.
struct Member {
  NodeId node = kNoNode;
  int merged = 0;  // the operand
  // In sums: the views and casts between the product and the sum, in order.
  std::vector<NodeId> chain = {};

  int shared() const { return 1 - merged; }
};

// Products that become one.
struct Group {
  std::vector<Member> members;  // in the order of the parts
  NodeId where = kNoNode;       // the node in whose place the merged product is computed
};

// A sum whose terms contain the products of a group.
struct Sum {
  Group products;
  std::vector<ValueId> rest = {};  // terms that stay
};

class Merge {
 public:
  explicit Merge(const Program& program)
      : program_(program),
        readers_(program),
        rewriter_(program, "merge"),
        replaced_(program.nodes.size(), false) {}

  Program run() {
    find_products_with_blocks();
    find_sums();
    find_products_of_assemblies();
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      emit(id);
      emit_waiting();
    }
    TRACESTEP_CHECK(waiting_.empty(), "merge: {} nodes wait for a merged product", waiting_.size());
    return rewriter_.finish();
  }

  // The results of each product of one value with a block, in the new program.
  const std::vector<std::vector<ValueId>>& forward_slices() const { return slices_; }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  ValueId operand(const Member& m, int i) const { return node(m.node).inputs[at(i)]; }
  const BlockPart& part_of(const Member& m) const {
    return program_.value(operand(m, m.merged)).part;
  }

  OpCall call_of(const Node& n, std::vector<Type>& types) const {
    types.clear();
    for (ValueId id : n.inputs) types.push_back(program_.type(id));
    return {*n.op, n.attrs, types, {}};
  }
  ProductAxes axes_of(NodeId id) const {
    std::vector<Type> types;
    return node(id).op->product(call_of(node(id), types));
  }

  // Equal for nodes that do the same to their operands.
  std::string kind_of(NodeId id) const {
    const Node& n = node(id);
    std::string out =
        fmt::format("{}#{}@{}", n.op->name, n.epoch, static_cast<int>(n.origin().phase));
    for (const auto& [name, value] : n.attrs.entries()) out += "|" + name + "=" + print(value);
    return out;
  }

  // The operand that is a part of a block; nullopt: the node is no product of one.
  std::optional<Member> product_with_part(NodeId id) const {
    if (id == kNoNode || !node(id).op->product) return std::nullopt;
    for (int i : {0, 1}) {
      const Value& v = program_.value(node(id).inputs[at(i)]);
      if (v.leaf != LeafKind::kNone && !v.part.block.empty()) return Member{id, i};
    }
    return std::nullopt;
  }

  // Sorts the members by their parts; false: they do not make up the whole block.
  bool fills_block(std::vector<Member>& members) const {
    std::ranges::sort(members, {}, [&](const Member& m) { return part_of(m).offset; });
    std::int64_t reached = 0;
    for (const Member& m : members) {
      if (part_of(m).offset != reached) return false;
      reached += program_.type(operand(m, m.merged)).count();
    }
    return members.size() > 1 && reached == part_of(members.front()).count;
  }

  // --- one operand with all parts of a block ---
  void find_products_with_blocks() {
    std::map<std::string, std::vector<Member>> found;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto m = product_with_part(static_cast<NodeId>(i));
      if (!m || axes_of(m->node).kept(m->merged) != 0) continue;
      found[fmt::format("{},{},{},{}", kind_of(m->node), m->merged, operand(*m, m->shared()),
                        part_of(*m).block)]
          .push_back(*m);
    }
    for (auto& [key, members] : found) {
      const NodeId first = members.front().node;
      if (fills_block(members)) add_group({std::move(members), first}, with_blocks_);
    }
  }

  // --- sums of products with all parts of a block ---
  bool is_inner(NodeId id) const {  // a sum that is only a term of another sum
    const NodeId reader = readers_.only(node(id).outputs[0]);
    return reader != kNoNode && node(reader).op->is_sum &&
           node(reader).origin().phase == node(id).origin().phase;
  }

  void add_terms(NodeId id, std::vector<ValueId>& terms, std::vector<NodeId>& sums) const {
    sums.push_back(id);
    for (ValueId input : node(id).inputs) {
      const NodeId maker = program_.value(input).producer;
      if (maker != kNoNode && node(maker).op->is_sum && is_inner(maker)) {
        add_terms(maker, terms, sums);
      } else {
        terms.push_back(input);
      }
    }
  }

  // f(x) + f(y) is f(x + y) but for rounding.
  bool is_additive(const Node& n) const {
    if (n.op->is_view()) {
      return program_.type(n.inputs[0]).count() == program_.type(n.outputs[0]).count();
    }
    return n.op->only_converts && is_floating(program_.type(n.inputs[0]).dtype) &&
           is_floating(program_.type(n.outputs[0]).dtype);
  }

  // The product that the term is, but for views and casts.
  std::optional<Member> product_of_term(ValueId term) const {
    std::vector<NodeId> chain;
    for (ValueId id = term; readers_.only(id) != kNoNode;) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode) return std::nullopt;
      if (auto m = product_with_part(maker)) {
        if (axes_of(maker).summed[at(m->merged)] != 0) return std::nullopt;
        m->chain.assign(chain.rbegin(), chain.rend());
        return m;
      }
      if (!is_additive(node(maker))) return std::nullopt;
      chain.push_back(maker);
      id = node(maker).inputs[0];
    }
    return std::nullopt;
  }

  void find_sums() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (node(id).op->is_sum && !is_inner(id)) find_sum(id);
    }
  }

  // Merges the terms of one block, if there is one that they fill.
  void find_sum(NodeId root) {
    std::vector<ValueId> terms;
    std::vector<NodeId> sums;
    add_terms(root, terms, sums);
    std::map<std::string, std::vector<Member>> found;
    std::map<NodeId, ValueId> term_of;
    for (ValueId term : terms) {
      const auto m = product_of_term(term);
      if (!m) continue;
      std::string key = fmt::format("{},{},{}", kind_of(m->node), m->merged, part_of(*m).block);
      for (NodeId step : m->chain) key += "," + kind_of(step);
      found[key].push_back(*m);
      term_of[m->node] = term;
    }
    for (auto& [key, members] : found) {
      if (!fills_block(members) || !may_assemble(members)) continue;
      Sum sum{{members, root}};
      for (const Member& m : members) {
        std::erase(terms, term_of[m.node]);
        for (NodeId step : m.chain) replaced_[at(step)] = true;
        assembled_[operand(m, m.shared())] = root;
      }
      sum.rest = terms;
      for (NodeId inner : sums) replaced_[at(inner)] = true;
      mark(members);
      sums_.emplace(root, std::move(sum));
      return;
    }
  }

  // Whether the other operands are values of their own, which only their products read.
  bool may_assemble(const std::vector<Member>& members) const {
    return std::ranges::all_of(members, [&](const Member& m) {
      const ValueId id = operand(m, m.shared());
      return program_.value(id).leaf == LeafKind::kNone && !readers_.at_end[at(id)] &&
             !assembled_.contains(id) && std::ranges::count(members, id, [&](const Member& o) {
                                           return operand(o, o.shared());
                                         }) == 1;
    });
  }

  // --- one value with all operands of such a sum ---
  void find_products_of_assemblies() {
    for (const auto& [root, sum] : sums_) {
      const int axis = summed_axis(sum);
      std::map<std::string, std::vector<Member>> found;
      for (const Member& m : sum.products.members) {
        const ValueId part = operand(m, m.shared());
        for (NodeId reader : readers_.nodes[at(part)]) {
          const auto other = product_of(reader, part, axis);
          if (!other || replaced_[at(reader)]) continue;
          found[fmt::format("{},{},{}", kind_of(reader), other->merged,
                            operand(*other, other->shared()))]
              .push_back(*other);
        }
      }
      for (auto& [key, members] : found) {
        if (members.size() != sum.products.members.size()) continue;
        const NodeId last =
            std::ranges::max_element(members, {}, [](const Member& m) { return m.node; })->node;
        add_group({std::move(members), last}, of_assemblies_);
      }
    }
  }

  // The axis of the other operands that their products are summed over.
  int summed_axis(const Sum& sum) const {
    const Member& first = sum.products.members.front();
    return axes_of(first.node).summed[at(first.shared())];
  }

  // The node as a product in which `axis` of `part`, its operand once, becomes an axis of the
  // result.
  std::optional<Member> product_of(NodeId id, ValueId part, int axis) const {
    const Node& n = node(id);
    if (!n.op->product || std::ranges::count(n.inputs, part) != 1) return std::nullopt;
    const int merged = n.inputs[0] == part ? 0 : 1;
    if (axes_of(id).kept(merged) != axis) return std::nullopt;
    return Member{id, merged};
  }

  void add_group(Group group, std::map<NodeId, Group>& groups) {
    mark(group.members);
    const NodeId where = group.where;
    groups.emplace(where, std::move(group));
  }
  void mark(const std::vector<Member>& members) {
    for (const Member& m : members) replaced_[at(m.node)] = true;
  }

  // --- the new program ---
  bool is_ready(const Node& n) const {
    return std::ranges::all_of(n.inputs, [&](ValueId id) { return rewriter_.has(id); });
  }

  // Nodes that read a merged product stand behind it, wherever they stood before.
  void emit(NodeId id) {
    if (const auto found = with_blocks_.find(id); found != with_blocks_.end()) {
      emit_product_with_block(found->second);
    } else if (const auto sum = sums_.find(id); sum != sums_.end()) {
      emit_sum(sum->second);
    } else if (const auto group = of_assemblies_.find(id); group != of_assemblies_.end()) {
      emit_product_of_assembly(group->second);
    } else if (!replaced_[at(id)]) {
      if (is_ready(node(id))) {
        rewriter_.copy(node(id));
      } else {
        waiting_.push_back(id);
      }
    }
  }

  void emit_waiting() {
    std::vector<NodeId> still;
    for (NodeId id : waiting_) {
      if (is_ready(node(id))) {
        rewriter_.copy(node(id));
      } else {
        still.push_back(id);
      }
    }
    waiting_ = std::move(still);
  }

  // While alive, nodes take the origins of the members.
  Builder::Guard like(const std::vector<Member>& members) {
    std::vector<const Node*> nodes;
    for (const Member& m : members) nodes.push_back(&node(m.node));
    auto guard = rewriter_.builder().like(nodes);
    rewriter_.builder().set_made_by("merge");
    return guard;
  }

  Val block_of(const Group& group) {
    std::vector<Val> parts;
    for (const Member& m : group.members) parts.push_back(rewriter_.map(operand(m, m.merged)));
    return rewriter_.builder().call1("block", parts);
  }

  Val product(const Member& like, Val merged, Val shared) {
    const Node& n = node(like.node);
    std::vector<Val> inputs(2);
    inputs[at(like.merged)] = merged;
    inputs[at(like.shared())] = shared;
    return rewriter_.builder().call(*n.op, inputs, n.attrs).front();
  }

  // The results of the members as slices of `whole`. A role that all of them have is its role.
  void replace_by_slices(const std::vector<Member>& members, Val whole) {
    const int rank = whole.shape().rank();
    const int axis = members.front().merged == 0 ? rank - 2 : rank - 1;
    const Role role = program_.value(node(members.front().node).outputs[0]).role;
    const bool is_common = std::ranges::all_of(members, [&](const Member& m) {
      return program_.value(node(m.node).outputs[0]).role == role;
    });
    if (is_common) rewriter_.builder().set_role(whole, role);
    std::int64_t start = 0;
    for (const Member& m : members) {
      const auto guard = rewriter_.from(node(m.node));
      const std::int64_t stop = start + program_.type(node(m.node).outputs[0]).shape[axis];
      rewriter_.replace(
          node(m.node),
          {rewriter_.builder().call1(
              "slice", {whole}, {{"axis", std::int64_t{axis}}, {"start", start}, {"stop", stop}})});
      start = stop;
    }
  }

  void emit_product_with_block(const Group& group) {
    const Member& first = group.members.front();
    Val whole;
    {
      const auto guard = like(group.members);
      whole = product(first, block_of(group), rewriter_.map(operand(first, first.shared())));
    }
    replace_by_slices(group.members, whole);
    slices_.emplace_back();
    for (const Member& m : group.members) {
      slices_.back().push_back(rewriter_.map(node(m.node).outputs[0]).id);
    }
  }

  // The assembly of the other operands of the sum at `root`.
  Val assembly_of(NodeId root) {
    Val& made = assemblies_[root];
    if (made) return made;
    const Sum& sum = sums_.at(root);
    std::vector<Val> parts;
    for (const Member& m : sum.products.members) {
      parts.push_back(rewriter_.map(operand(m, m.shared())));
    }
    const auto guard = like(sum.products.members);
    made = rewriter_.builder().call1("assemble", parts, {{"axis", std::int64_t{summed_axis(sum)}}});
    return made;
  }

  void emit_product_of_assembly(const Group& group) {
    const Member& first = group.members.front();
    Val whole = assembly_of(assembled_.at(operand(first, first.merged)));
    {
      const auto guard = like(group.members);
      whole = product(first, whole, rewriter_.map(operand(first, first.shared())));
    }
    replace_by_slices(group.members, whole);
  }

  void emit_sum(const Sum& sum) {
    const Member& first = sum.products.members.front();
    const Val other = assembly_of(sum.products.where);
    Val x;
    {
      const auto guard = like(sum.products.members);
      x = product(first, block_of(sum.products), other);
      for (NodeId step : first.chain) {
        x = rewriter_.builder().call(*node(step).op, {x}, node(step).attrs).front();
      }
    }
    const Node& root = node(sum.products.where);
    const auto guard = rewriter_.from(root);
    for (ValueId term : sum.rest) {
      x = rewriter_.builder().call(*root.op, {x, rewriter_.map(term)}, root.attrs).front();
    }
    rewriter_.replace(root, {x});
  }

  const Program& program_;
  Readers readers_;
  Rewriter rewriter_;
  std::vector<bool> replaced_;             // by node: a merged node stands for it
  std::map<NodeId, Group> with_blocks_;    // by the node in whose place it is computed
  std::map<NodeId, Group> of_assemblies_;  // likewise
  std::map<NodeId, Sum> sums_;             // likewise
  std::map<ValueId, NodeId> assembled_;    // parts of assemblies: the sum
  std::map<NodeId, Val> assemblies_;       // by sum
  std::vector<NodeId> waiting_;            // nodes behind which a merged product will stand
  std::vector<std::vector<ValueId>> slices_;
};

// --- what backward keeps ------------------------------------------------------------------------
// Views of one slice of a merged product that nodes other than views read.
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

// Otherwise `materialize` makes a copy anyway.
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

// The values that backward shall keep as copies, so that it does not keep the whole results of the
// forward products in `merged`, each given by its slices.
std::vector<ValueId> values_to_copy(const Program& p,
                                    const std::vector<std::vector<ValueId>>& merged) {
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
    std::ranges::copy_if(saved, std::back_inserter(out),
                         [&](ValueId id) { return is_read_as_it_is(p, readers, id); });
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

Program merge(const Program& program) {
  Merge pass(program);
  Program out = pass.run();
  const std::vector<ValueId> values = values_to_copy(out, pass.forward_slices());
  return values.empty() ? out : with_copies(out, values);
}

}  // namespace tracestep

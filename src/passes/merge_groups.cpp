#include "passes/merge_groups.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "analysis/readers.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "passes/kernel_passes.h"

namespace tracestep {
namespace {

class Finder {
 public:
  explicit Finder(const Program& program) : program_(program), readers_(program) {
    out_.replaced.assign(program.nodes.size(), false);
  }

  Merges find() {
    find_products_with_blocks();
    find_sums();
    find_products_of_assemblies();
    find_column_sums();
    find_readers_of_slices();
    return std::move(out_);
  }

 private:
  const Node& node(NodeId id) const { return program_.node(id); }
  ValueId operand(const MergedProduct& m, int i) const { return node(m.node).inputs[at(i)]; }
  const BlockPart& part_of(const MergedProduct& m) const {
    return program_.value(weight_behind(program_, operand(m, m.merged))).part;
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

  // Returns a text, equal for products that one group can hold.
  std::string kind_of(const MergedProduct& m) const {
    return fmt::format("{},{},{},{}", kind_of(m.node), m.merged,
                       name_of(program_.type(operand(m, m.merged)).dtype), part_of(m).block);
  }

  // Returns a text, equal for nodes that do the same to their operands.
  std::string kind_of(NodeId id) const {
    const Node& n = node(id);
    std::string out =
        fmt::format("{}#{}@{}", n.op->name, n.epoch, static_cast<int>(n.origin().phase));
    for (const auto& [name, value] : n.attrs.entries()) out += "|" + name + "=" + print(value);
    return out;
  }

  // Returns the node as a product with a part of a memory block; nullopt: it is none.
  std::optional<MergedProduct> product_with_part(NodeId id) const {
    if (id == kNoNode || !node(id).op->product) return std::nullopt;
    for (int i : {0, 1}) {
      const ValueId weight = weight_behind(program_, node(id).inputs[at(i)]);
      if (weight != kNoValue && !program_.value(weight).part.block.empty()) {
        return MergedProduct{id, i};
      }
    }
    return std::nullopt;
  }

  // Sorts the members by their parts; false: they do not make up the whole block.
  bool fills_block(std::vector<MergedProduct>& members) const {
    std::ranges::sort(members, {}, [&](const MergedProduct& m) { return part_of(m).offset; });
    std::int64_t reached = 0;
    for (const MergedProduct& m : members) {
      if (part_of(m).offset != reached) return false;
      reached += program_.type(operand(m, m.merged)).count();
    }
    return members.size() > 1 && reached == part_of(members.front()).count;
  }

  // True if the sorted members have no biases, or biases that fill one block in the same order.
  bool has_biases_alike(const std::vector<MergedProduct>& members) const {
    if (!has_bias(node(members.front().node))) return true;
    std::int64_t reached = 0;
    std::string block;
    for (const MergedProduct& m : members) {
      const ValueId bias = operand(m, kBias), leaf = weight_behind(program_, bias);
      if (m.merged != 1 || leaf == kNoValue) return false;
      const BlockPart& part = program_.value(leaf).part;
      if (reached == 0) block = part.block;
      if (part.block.empty() || part.block != block || part.offset != reached) return false;
      reached += program_.type(bias).count();
      if (&m == &members.back()) return reached == part.count;
    }
    return false;
  }

  // Finds products of one operand with all parts of a memory block, which become one product.
  void find_products_with_blocks() {
    std::map<std::string, std::vector<MergedProduct>> found;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto m = product_with_part(static_cast<NodeId>(i));
      if (!m || axes_of(m->node).kept(m->merged) != 0) continue;
      found[fmt::format("{},{}", kind_of(*m), operand(*m, m->shared()))].push_back(*m);
    }
    for (auto& [key, members] : found) {
      const NodeId first = members.front().node;
      if (fills_block(members) && has_biases_alike(members)) {
        add_group({std::move(members), first}, out_.with_blocks);
      }
    }
  }

  // True if only one other sum of the same phase reads this sum, which is then part of that sum.
  bool is_inner(NodeId id) const {  // a sum that is only a term of another sum
    const NodeId reader = readers_.only(node(id).outputs[0]);
    return reader != kNoNode && node(reader).op->is_sum &&
           node(reader).origin().phase == node(id).origin().phase;
  }

  // All terms of a sum and of the sums nested in it; `inside`: these sums, and views in between.
  struct Terms {
    std::vector<SumTerm> all;
    std::vector<NodeId> inside;
  };
  void add_terms(NodeId id, Terms& to) const {
    to.inside.push_back(id);
    for (ValueId input : node(id).inputs) {
      const NodeId maker = program_.value(input).producer;
      if (maker != kNoNode && node(maker).op->is_sum && is_inner(maker)) {
        add_terms(maker, to);
      } else {
        to.all.push_back({input});
      }
    }
  }

  // Lists the terms of sum `id` and of sums that reach it through views and casts: adapters add to
  // each product before products are summed. `chain`: the nodes from sum `id` to the outermost sum.
  void add_terms_behind_views(NodeId id, const std::vector<NodeId>& chain, Terms& to) const {
    to.inside.push_back(id);
    for (ValueId input : node(id).inputs) {
      std::vector<NodeId> views;
      ValueId value = input;
      NodeId maker = program_.value(value).producer;
      while (is_passed_on(value, id) && is_additive(node(maker))) {
        views.push_back(maker);
        value = node(maker).inputs[0];
        maker = program_.value(value).producer;
      }
      if (!is_passed_on(value, id) || !node(maker).op->is_sum || out_.replaced[at(maker)]) {
        to.all.push_back({input, chain});
        continue;
      }
      std::vector<NodeId> longer(views.rbegin(), views.rend());
      longer.insert(longer.end(), chain.begin(), chain.end());
      to.inside.insert(to.inside.end(), views.begin(), views.end());
      add_terms_behind_views(maker, longer, to);
    }
  }
  // True if a node of the sum's phase made the value, and the value has a single reader.
  bool is_passed_on(ValueId value, NodeId sum) const {
    const NodeId maker = program_.value(value).producer;
    return maker != kNoNode && readers_.only(value) != kNoNode &&
           node(maker).origin().phase == node(sum).origin().phase;
  }

  // True if the node computes a function f with f(x) + f(y) = f(x + y), but for rounding.
  bool is_additive(const Node& n) const {
    if (n.op->is_view()) {
      return program_.type(n.inputs[0]).count() == program_.type(n.outputs[0]).count();
    }
    return n.op->only_converts && is_floating(program_.type(n.inputs[0]).dtype) &&
           is_floating(program_.type(n.outputs[0]).dtype);
  }

  // Returns the product that makes the term, through views and casts; nullopt: there is none.
  std::optional<MergedProduct> product_of_term(ValueId term) const {
    std::vector<NodeId> chain;
    for (ValueId id = term; readers_.only(id) != kNoNode;) {
      const NodeId maker = program_.value(id).producer;
      if (maker == kNoNode) return std::nullopt;
      if (auto m = product_with_part(maker); m && !has_bias(node(maker))) {
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

  // Merges terms of the sum that are products with all parts of one block; nested sums are direct
  // terms. Else, in backward, of several blocks, also in sums nested through views and casts.
  void find_sum(NodeId root) {
    Terms terms;
    add_terms(root, terms);
    if (merge_terms(root, std::move(terms), 1)) return;
    if (node(root).origin().phase != Phase::kBackward || is_term_behind_views(root)) return;
    Terms more;
    add_terms_behind_views(root, {}, more);
    merge_terms(root, std::move(more), more.all.size());
  }

  // True if the sum is a term of another sum of its phase, through views and casts alone.
  bool is_term_behind_views(NodeId id) const {
    const Phase phase = node(id).origin().phase;
    for (NodeId next = readers_.only(node(id).outputs[0]); next != kNoNode;
         next = readers_.only(node(next).outputs[0])) {
      if (node(next).origin().phase != phase) return false;
      if (node(next).op->is_sum) return true;
      if (!is_additive(node(next))) return false;
    }
    return false;
  }

  // Notes which terms of the sum `root` become merged products, in at most `most_groups` groups.
  // Returns false, and notes nothing, if no terms fill a block.
  bool merge_terms(NodeId root, Terms terms, std::size_t most_groups) {
    std::map<std::string, std::vector<MergedProduct>> found;
    std::map<NodeId, ValueId> term_of;
    for (const SumTerm& term : terms.all) {
      auto m = product_of_term(term.value);
      if (!m) continue;
      m->chain.insert(m->chain.end(), term.chain.begin(), term.chain.end());
      std::string key = kind_of(*m);
      for (NodeId step : m->chain) key += "," + kind_of(step);
      found[key].push_back(*m);
      term_of[m->node] = term.value;
    }
    MergedSum sum;
    for (auto& [key, members] : found) {
      if (sum.groups.size() == most_groups) break;
      if (!fills_block(members) || !may_assemble(members)) continue;
      for (const MergedProduct& m : members) {
        std::erase_if(terms.all,
                      [&](const SumTerm& term) { return term.value == term_of[m.node]; });
        for (NodeId step : m.chain) out_.replaced[at(step)] = true;
        out_.assembled[operand(m, m.shared())] = {root, sum.groups.size()};
      }
      mark(members);
      sum.groups.push_back({{members, root}, summed_axis(members.front())});
    }
    if (sum.groups.empty()) return false;
    sum.rest = std::move(terms.all);
    for (NodeId inner : terms.inside) out_.replaced[at(inner)] = true;
    out_.sums.emplace(root, std::move(sum));
    return true;
  }

  // True if each product's other operand is its own: no leaf, no output, and in no other assembly.
  bool may_assemble(const std::vector<MergedProduct>& members) const {
    return std::ranges::all_of(members, [&](const MergedProduct& m) {
      const ValueId id = operand(m, m.shared());
      return program_.value(id).leaf == LeafKind::kNone && !readers_.at_end[at(id)] &&
             !out_.assembled.contains(id) &&
             std::ranges::count(
                 members, id, [&](const MergedProduct& o) { return operand(o, o.shared()); }) == 1;
    });
  }

  // Finds products of one value with all operands of an assembly, which become one product.
  void find_products_of_assemblies() {
    for (const auto& [root, sum] : out_.sums) {
      for (const SummedProducts& group : sum.groups) find_products_of_assembly(group);
    }
  }
  void find_products_of_assembly(const SummedProducts& sum) {
    std::map<std::string, std::vector<MergedProduct>> found;
    for (const MergedProduct& m : sum.products.members) {
      const ValueId part = operand(m, m.shared());
      for (NodeId reader : readers_.nodes[at(part)]) {
        const auto other = product_of(reader, part, sum.summed_axis);
        if (!other || out_.replaced[at(reader)]) continue;
        found[fmt::format("{},{},{}", kind_of(reader), other->merged,
                          operand(*other, other->shared()))]
            .push_back(*other);
      }
    }
    for (auto& [key, members] : found) {
      if (members.size() != sum.products.members.size()) continue;
      const NodeId last = std::ranges::max_element(members, {}, [](const MergedProduct& m) {
                            return m.node;
                          })->node;
      const bool is_apart =
          std::ranges::any_of(members, [&](const MergedProduct& m) { return is_added(m.node); });
      add_group({std::move(members), last, is_apart}, out_.of_assemblies);
    }
  }

  // --- others that read operands in assemblies ---
  // Makes other products of an assembly's operands read slices of it, so that the operands can be
  // written in place there, if none of them depends on what those products compute.
  void find_readers_of_slices() {
    for (const auto& [root, sum] : out_.sums) {
      for (std::size_t i = 0; i < sum.groups.size(); ++i) {
        const std::vector<NodeId> readers = other_readers(sum.groups[i]);
        if (readers.empty() || leads_to_operands(readers, sum.groups[i])) continue;
        for (NodeId reader : readers) out_.read_slices[reader].emplace_back(root, i);
      }
    }
  }
  // Returns the products of the operands that are not merged; none if another op reads one.
  std::vector<NodeId> other_readers(const SummedProducts& sum) const {
    std::vector<NodeId> out;
    for (const MergedProduct& m : sum.products.members) {
      for (NodeId reader : readers_.nodes[at(operand(m, m.shared()))]) {
        if (out_.replaced[at(reader)]) continue;
        if (!node(reader).op->product) return {};
        out.push_back(reader);
      }
    }
    return out;
  }
  bool leads_to_operands(const std::vector<NodeId>& readers, const SummedProducts& sum) const {
    const NodeId begin = std::ranges::min(readers);
    NodeId end = begin;
    std::set<NodeId> makers;
    for (const MergedProduct& m : sum.products.members) {
      makers.insert(program_.value(operand(m, m.shared())).producer);
      end = std::max(end, *makers.rbegin());
    }
    std::set<NodeId> reached(readers.begin(), readers.end());
    for (NodeId id = begin; id <= end; ++id) {
      const bool follows = std::ranges::any_of(node(id).inputs, [&](ValueId input) {
        return reached.contains(program_.value(input).producer);
      });
      if (follows) reached.insert(id);
    }
    return std::ranges::any_of(makers, [&](NodeId maker) { return reached.contains(maker); });
  }

  // True if something is added to the product's result: the product itself can add it (`epilogue`),
  // but a product of all parts cannot.
  bool is_added(NodeId id) const {
    const NodeId reader = readers_.only(node(id).outputs[0]);
    if (reader == kNoNode) return false;
    return node(reader).op->is_sum || (is_additive(node(reader)) && is_added(reader));
  }

  // Returns the axis over which the product sums its other operand, MergedProduct::shared().
  int summed_axis(const MergedProduct& m) const { return axes_of(m.node).summed[at(m.shared())]; }

  // Returns the node as a product that reads `part` once and keeps its axis `axis` in the result;
  // nullopt: it is no such product.
  std::optional<MergedProduct> product_of(NodeId id, ValueId part, int axis) const {
    const Node& n = node(id);
    if (!n.op->product || has_bias(n) || std::ranges::count(n.inputs, part) != 1) {
      return std::nullopt;
    }
    const int merged = n.inputs[0] == part ? 0 : 1;
    if (axes_of(id).kept(merged) != axis) return std::nullopt;
    return MergedProduct{id, merged};
  }

  // --- sums of the rows of operands in assemblies ---
  // Returns the value from which views make `id` with the same rows in the same order, or `id`.
  ValueId rows_of(ValueId id) const {
    for (NodeId maker = program_.value(id).producer; maker != kNoNode;) {
      const Node& view = node(maker);
      const bool is_same = view.op->is_view() && view.inputs.size() == 1 &&
                           keeps_order(program_, view) &&
                           program_.type(view.inputs[0]).shape.back() == width_of(id);
      if (!is_same) break;
      id = view.inputs[0];
      maker = program_.value(id).producer;
    }
    return id;
  }
  std::int64_t width_of(ValueId id) const { return program_.type(id).shape.back(); }

  void find_column_sums() {
    if (out_.sums.empty()) return;
    std::map<ValueId, std::vector<NodeId>> sums_of;  // by the tensor
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (!out_.replaced[i] && sums_columns(program_, program_.nodes[i])) {
        sums_of[rows_of(program_.nodes[i].inputs[0])].push_back(static_cast<NodeId>(i));
      }
    }
    for (auto& [root, sum] : out_.sums) {
      for (SummedProducts& group : sum.groups) add_column_sums(group, sums_of);
    }
  }

  // Adds to `sum` the column sums of all operands, if the assembly joins the operands by columns.
  void add_column_sums(SummedProducts& sum, const std::map<ValueId, std::vector<NodeId>>& sums_of) {
    const std::vector<MergedProduct>& members = sum.products.members;
    std::vector<NodeId> found;
    for (const MergedProduct& m : members) {
      const ValueId part = operand(m, m.shared());
      const auto sums = sums_of.find(rows_of(part));
      const bool joins_columns = sum.summed_axis == program_.type(part).shape.rank() - 1;
      if (!joins_columns || sums == sums_of.end() || sums->second.size() != 1) return;
      found.push_back(sums->second.front());
    }
    const auto kind = [&](NodeId id) {
      return kind_of(id) + std::string(name_of(program_.type(node(id).outputs[0]).dtype));
    };
    const auto is_like_the_first = [&](NodeId id) { return kind(id) == kind(found.front()); };
    if (!std::ranges::all_of(found, is_like_the_first)) return;
    for (NodeId id : found) out_.replaced[at(id)] = true;
    sum.column_sums = std::move(found);
  }

  void add_group(MergeGroup group, std::map<NodeId, MergeGroup>& groups) {
    mark(group.members);
    const NodeId where = group.where;
    groups.emplace(where, std::move(group));
  }
  void mark(const std::vector<MergedProduct>& members) {
    for (const MergedProduct& m : members) out_.replaced[at(m.node)] = true;
  }

  const Program& program_;
  const Readers readers_;
  Merges out_;
};

}  // namespace

Merges find_merges(const Program& program) {
  return Finder(program).find();
}

ValueId weight_behind(const Program& program, ValueId id) {
  const Value& v = program.value(id);
  if (v.leaf != LeafKind::kNone) return id;
  const bool is_copy = v.role == Role::kWeightCast && program.node(v.producer).op->only_converts;
  if (!is_copy) return kNoValue;
  const ValueId from = program.node(v.producer).inputs[0];
  return program.value(from).leaf == LeafKind::kNone ? kNoValue : from;
}

}  // namespace tracestep

#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "run/adapters.h"

namespace tracestep {
namespace {

constexpr Phase kCommunication = Phase::kCommunication;

struct Division {
  std::string_view suffix;
  int axis;
};
constexpr Division kDivisions[] = {{".attn.q_proj.weight", 0},
                                   {".attn.k_proj.weight", 0},
                                   {".attn.v_proj.weight", 0},
                                   {".attn.output_proj.weight", 1},
                                   {".ffn.w1.weight", 0},
                                   {".ffn.w3.weight", 0},
                                   {".ffn.w2.weight", 1},
                                   {"lm_head.weight", 0},
                                   {"token_embeddings.weight", 0},
                                   {".attn.q_proj.bias", 0},
                                   {".attn.k_proj.bias", 0},
                                   {".attn.v_proj.bias", 0},
                                   {".ffn.w1.bias", 0},
                                   {".ffn.w3.bias", 0}};

// Returns the product of the sizes of the axes before `axis`.
std::int64_t count_before(const Shape& shape, int axis) {
  std::int64_t out = 1;
  for (int i = 0; i < axis; ++i) out *= shape[i];
  return out;
}

void divide(Value& leaf, int axis, int ranks) {
  std::int64_t& size = leaf.type.shape[axis];
  if (size % ranks != 0) {
    throw Error(ErrorCode::kUsage, "parallel"_field,
                fmt::format("{} ranks cannot divide the {} {} of {}", ranks, size,
                            axis == 0 ? "rows" : "columns", leaf.name),
                "give tp=N that divides heads, d_ff and vocabulary");
  }
  size /= ranks;
  leaf.layout.strides = contiguous_strides(leaf.type.shape);
  leaf.part.offset /= ranks;
  leaf.part.count /= ranks;
}

bool is_weight(const Value& leaf) {
  return leaf.leaf == LeafKind::kParameter || leaf.leaf == LeafKind::kConstant;
}

// Returns the program with smaller leaves in the places of its weights; it is read by Rewriter
// only, which makes new nodes.
Program with_parts(const Program& program, int ranks) {
  Program out = program;
  for (ValueId id : program.leaves) {
    Value& leaf = out.values[static_cast<std::size_t>(id)];
    const auto axis = split_axis(leaf.name);
    if (is_weight(leaf) && axis) divide(leaf, *axis, ranks);
  }
  return out;
}

// Says which part of an old value, as all ranks have it together, the new value on this rank is.
struct Part {
  static constexpr int kWhole = -1;  // it is all of it
  static constexpr int kRows = -2;   // [rows/ranks, last axis], where the old one has rows of that
  int axis = kWhole;                 // else: divided along this axis

  bool is_whole() const { return axis == kWhole; }
  bool is_rows() const { return axis == kRows; }
  friend bool operator==(const Part&, const Part&) = default;
};

class Split {
 public:
  Split(const Program& program, const Parallel& choice)
      : program_(program),
        leaves_(with_parts(program, choice.tensor)),
        group_(choice.within_replica()),
        divides_rows_(choice.divides_rows),
        r_(leaves_, "split"),
        parts_(program.values.size()) {
    for (ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      const auto axis = split_axis(leaf.name);
      if (is_weight(leaf) && axis) parts_[at(id)].axis = *axis;
    }
  }

  Program run() {
    for (const Node& node : program_.nodes) rewrite(node);
    for (const Output& o : program_.outputs) r_.replace(o.value, whole(o.value));
    return r_.finish();
  }

 private:
  using Rule = void (Split::*)(const Node&);

  const Part& part(ValueId id) const { return parts_[at(id)]; }
  const Shape& shape(ValueId id) const { return program_.type(id).shape; }

  // Returns the rule by which an op computes the rank's part of its results; nullptr: it has none.
  static Rule rule_of(const OpDef& op) {
    static const std::map<std::string_view, Rule> by_name{
        {"gather", &Split::look_up},      {"reshape", &Split::reshape},
        {"permute", &Split::permute},     {"sum", &Split::sum},
        {"cross_entropy", &Split::loss},  {"rms_norm", &Split::norm},
        {"layer_norm", &Split::norm},     {"slice", &Split::along_other_axis},
        {"broadcast", &Split::broadcast}, {"concat", &Split::along_other_axis}};
    if (const auto found = by_name.find(op.name); found != by_name.end()) return found->second;
    if (op.product) return &Split::product;
    if (op.fusion == Fusion::kElementwise) return &Split::elementwise;
    const bool by_heads = op.fusion == Fusion::kPairs || op.kernel_class == KernelClass::kAttention;
    return by_heads ? &Split::by_leading_axes : nullptr;
  }

  void rewrite(const Node& node) {
    const bool any =
        std::ranges::any_of(node.inputs, [&](ValueId id) { return !part(id).is_whole(); });
    if (!any) {
      r_.copy(node);
      return;
    }
    const Rule rule = rule_of(*node.op);
    if (rule == nullptr) refuse(node);
    (this->*rule)(node);
  }

  [[noreturn]] void refuse(const Node& node) const {
    throw Error(
        ErrorCode::kUsage, "parallel"_field,
        fmt::format("{} ({}) reads a tensor that ranks divide, and cannot compute a part of "
                    "its result from that",
                    node.op->name, node.origin().path),
        "leave out tp");
  }

  // Replaces the only result of `node` by `value`, and notes that this is the `part` of it.
  void set(const Node& node, Val value, Part part) {
    r_.replace(node.outputs[0], value);
    parts_[at(node.outputs[0])] = part;
  }

  // Copies the node: its op computes a part of the result from the parts of the operands.
  void copy_parts(const Node& node, Part part) {
    r_.copy(node);
    parts_[at(node.outputs[0])] = part;
  }

  Val collective(const Node& node, std::string_view op, Val x, Attrs attrs = {}) {
    const auto guard = r_.from(node, &kCommunication);
    return r_.builder().call1(op, {x}, in_group(group_, std::move(attrs)));
  }

  Val gathered(const Node& node, Val parts, const Shape& shape) {
    const Val flat = [&] {
      const auto guard = r_.from(node);
      return ops::reshape(parts, {parts.type().count()});
    }();
    return collective(node, "all_gather", flat, {{"shape", shape}});
  }

  Val to_ranks(const Node& node, Val x) {
    const auto guard = r_.from(node);
    return r_.builder().call1("to_ranks", {x}, in_group(group_));
  }

  // Sums the ranks' terms of the result of `node`, and replaces the result by the sum.
  void set_sum(const Node& node, Val terms) {
    const Shape& whole = shape(node.outputs[0]);
    const std::int64_t width = whole.empty() ? 0 : whole.back();
    const bool has_rows = width > 0 && whole.product() / width % group_.ranks == 0;
    if (divides_rows_ && !has_rows) {
      throw Error(ErrorCode::kUsage, "parallel"_field,
                  fmt::format("{} ranks cannot divide the {} rows of {}", group_.ranks,
                              width > 0 ? whole.product() / width : 0, node.origin().path),
                  "give a batch and a context whose product tp=N divides, or leave out sp");
    }
    if (!divides_rows_) {
      set(node, collective(node, "all_reduce", terms), {});
      return;
    }
    const Val rows = collective(node, "reduce_scatter", terms);
    const auto guard = r_.from(node);
    set(node, ops::reshape(rows, {rows.type().count() / width, width}), {Part::kRows});
  }

  // Returns the value from which reshapes make `id`, or `id` itself.
  ValueId source(ValueId id) const {
    const NodeId maker = program_.value(id).producer;
    const bool is_same = maker != kNoNode && program_.node(maker).op->name == "reshape";
    return is_same ? source(program_.node(maker).inputs[0]) : id;
  }

  // Returns the whole value, gathered if divided, which each rank reads for its part of a result.
  Val for_all_parts(ValueId id, const Node& reader) {
    const ValueId from = source(id);
    auto& found = spread_[from];
    if (!found) {
      const NodeId maker = program_.value(from).producer;
      const Node& path = maker == kNoNode ? reader : program_.node(maker);
      found = part(from).is_rows() ? gathered(path, r_.map(from), shape(from))
                                   : to_ranks(path, r_.map(from));
    }
    const auto guard = r_.from(reader);
    return ops::reshape(found, shape(id));
  }

  // Computes columns of x·W, or terms of it that are summed, as the weight is divided.
  void product(const Node& node) {
    const std::vector<Type> types{program_.type(node.inputs[0]), program_.type(node.inputs[1])};
    const ProductAxes axes = node.op->product(OpCall{*node.op, node.attrs, types, {}});
    const ValueId x = node.inputs[0], weight = node.inputs[1];
    const int divided = part(weight).axis;
    if (divided == axes.columns && (part(x).is_whole() || part(x).is_rows())) {
      const Val all = for_all_parts(x, node);
      std::vector<Val> operands{all, r_.map(weight)};
      if (has_bias(node)) {
        if (part(node.inputs[2]).axis != 0) refuse(node);
        operands.push_back(r_.map(node.inputs[2]));
      }
      const auto guard = r_.from(node);
      const int last = shape(node.outputs[0]).rank() - 1;
      set(node, r_.builder().call(*node.op, operands, node.attrs).front(), {last});
      return;
    }
    if (divided != axes.summed[1] || part(x).axis != axes.summed[0]) refuse(node);
    const auto terms = [&] {
      const auto guard = r_.from(node);
      return ops::matmul(r_.map(x), r_.map(weight),
                         {node.attrs.flag("transpose_a"), node.attrs.flag("transpose_b")});
    }();
    set_sum(node, terms);
    if (has_bias(node)) add_bias(node);
  }
  static bool has_bias(const Node& product) { return product.inputs.size() == 3; }

  // Adds the bias to the sum of all ranks' terms.
  void add_bias(const Node& node) {
    const ValueId bias = node.inputs[2], y = node.outputs[0];
    if (!part(bias).is_whole()) refuse(node);
    const Part own = part(y);
    const Val row = own.is_rows() ? for_all_parts(bias, node) : r_.map(bias);
    const auto guard = r_.from(node);
    set(node, ops::add(r_.map(y), row), own);
  }

  // Looks rows up; those that other ranks have count as zeros, and the ranks' terms are summed.
  void look_up(const Node& node) {
    const ValueId table = node.inputs[0], indices = node.inputs[1];
    if (part(table).axis != 0 || !part(indices).is_whole()) refuse(node);
    const std::int64_t count = shape(table)[0];
    const auto terms = [&] {
      const auto guard = r_.from(node);
      const auto own = r_.builder().call(find_op("own_indices"), {r_.map(indices)},
                                         in_group(group_, {{"count", count}}));
      const Val rows = ops::gather(r_.map(table), own[0]);
      Shape one_each = shape(indices);
      one_each.push_back(1);
      return ops::mul(rows, ops::reshape(ops::cast(own[1], rows.dtype()), one_each));
    }();
    set_sum(node, terms);
  }

  // Reshapes the rank's part: divides the new axis that begins where the divided one did.
  void reshape(const Node& node) {
    const ValueId x = node.inputs[0];
    const Shape &from = shape(x), &to = shape(node.outputs[0]);
    if (part(x).is_rows()) {
      if (to.empty() || to.back() != from.back()) refuse(node);
      set(node, r_.map(x), {Part::kRows});
      return;
    }
    const std::int64_t before = count_before(from, part(x).axis);
    for (int axis = to.rank() - 1; axis >= 0; --axis) {
      if (count_before(to, axis) != before || to[axis] % group_.ranks != 0) continue;
      Shape own = to;
      own[axis] /= group_.ranks;
      const auto guard = r_.from(node);
      set(node, ops::reshape(r_.map(x), own), {axis});
      return;
    }
    refuse(node);
  }

  void permute(const Node& node) {
    const Dims& axes = node.attrs.ints("axes");
    const auto* found = std::find(axes.begin(), axes.end(), part(node.inputs[0]).axis);
    if (found == axes.end()) refuse(node);
    copy_parts(node, {static_cast<int>(found - axes.begin())});
  }

  // Returns the row of which `id` is a broadcast; kNoValue: it is none.
  ValueId repeated_row(ValueId id) const {
    const NodeId maker = program_.value(id).producer;
    if (maker == kNoNode || program_.node(maker).op->name != "broadcast") return kNoValue;
    const ValueId row = program_.node(maker).inputs[0];
    return shape(row).rank() == 1 && shape(row).back() == shape(id).back() ? row : kNoValue;
  }

  // Computes the op on the operands' parts, divided alike; a row that is added to all stays whole.
  void elementwise(const Node& node) {
    const ValueId x = node.inputs[0];
    std::vector<Val> operands;
    bool is_copy = true;
    for (ValueId id : node.inputs) {
      const ValueId row = part(x).is_rows() && part(id).is_whole() ? repeated_row(id) : kNoValue;
      if (row == kNoValue && part(id) != part(x)) refuse(node);
      is_copy = is_copy && row == kNoValue;
      if (row == kNoValue) {
        operands.push_back(r_.map(id));
        continue;
      }
      const Val all = for_all_parts(row, node);
      const auto guard = r_.from(node);
      operands.push_back(ops::broadcast_to(all, r_.map(x).shape()));
    }
    if (is_copy) return copy_parts(node, part(x));
    const auto guard = r_.from(node);
    set(node, r_.builder().call(*node.op, operands, node.attrs).front(), part(x));
  }

  // Broadcasts the rank's part; the operand's axes are the last ones of the result.
  void broadcast(const Node& node) {
    const ValueId x = node.inputs[0];
    const Shape& to = shape(node.outputs[0]);
    if (part(x).axis < 0) refuse(node);
    const int axis = part(x).axis + to.rank() - shape(x).rank();
    Shape own = to;
    own[axis] /= group_.ranks;
    const auto guard = r_.from(node);
    set(node, ops::broadcast_to(r_.map(x), own), {axis});
  }

  // Cuts or joins along one axis values that are divided along another.
  void along_other_axis(const Node& node) {
    const Part own = part(node.inputs[0]);
    const int rank = shape(node.inputs[0]).rank();
    const auto axis = static_cast<int>((node.attrs.integer("axis") + rank) % rank);
    if (own.axis < 0 || own.axis == axis) refuse(node);
    for (ValueId id : node.inputs) {
      if (part(id) != own) refuse(node);
    }
    copy_parts(node, own);
  }

  // Computes each matrix of the last two axes separately; operands that all of them share stay
  // whole.
  void by_leading_axes(const Node& node) {
    const Part own = part(node.inputs[0]);
    if (own.axis < 0 || own.axis > shape(node.inputs[0]).rank() - 3) refuse(node);
    for (ValueId id : node.inputs) {
      const bool is_table = shape(id).rank() < 3;
      if (part(id) != (is_table ? Part{} : own)) refuse(node);
    }
    copy_parts(node, own);
  }

  // Normalises the rank's rows or heads. The gradients of weight and bias are sums over all rows.
  void norm(const Node& node) {
    const Part own = part(node.inputs[0]);
    const bool has_whole_rows = own.is_rows() || own.axis < shape(node.inputs[0]).rank() - 1;
    if (own.is_whole() || !has_whole_rows) refuse(node);
    std::vector<Val> operands{r_.map(node.inputs[0])};
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      if (!part(node.inputs[i]).is_whole()) refuse(node);
      operands.push_back(for_all_parts(node.inputs[i], node));
    }
    const auto guard = r_.from(node);
    set(node, r_.builder().call(*node.op, operands, node.attrs).front(), own);
  }

  void sum(const Node& node) {
    const Shape& from = shape(node.inputs[0]);
    const Dims& axes = node.attrs.ints("axes");
    const bool is_summed = std::ranges::any_of(axes, [&](std::int64_t axis) {
      return (axis + from.rank()) % from.rank() == part(node.inputs[0]).axis;
    });
    if (!is_summed) refuse(node);
    const auto terms = [&] {
      const auto guard = r_.from(node);
      return r_.builder().call(*node.op, r_.inputs(node), node.attrs).front();
    }();
    set(node, collective(node, "all_reduce", terms), {});
  }

  void loss(const Node& node) {
    const auto is_whole = [&](ValueId id) { return part(id).is_whole(); };
    if (part(node.inputs[0]).axis != 1 ||
        !std::all_of(node.inputs.begin() + 1, node.inputs.end(), is_whole)) {
      refuse(node);
    }
    const auto guard = r_.from(node);
    r_.replace(node, r_.builder().call(
                         find_op("cross_entropy_of_parts"), r_.inputs(node),
                         in_group(group_, {{"ignore_index", node.attrs.integer("ignore_index")}})));
  }

  // Returns the whole value: if it is divided, all ranks' parts joined side by side.
  Val whole(ValueId id) {
    const Part own = part(id);
    if (own.is_whole()) return r_.map(id);
    const Node& node = program_.node(program_.value(id).producer);
    const Val x = r_.map(id);
    if (own.is_rows()) return gathered(node, x, shape(id));
    Shape by_rank{group_.ranks};
    Dims axes;
    for (int i = 0; i < x.shape().rank(); ++i) {
      by_rank.push_back(x.shape()[i]);
      if (i == own.axis) axes.push_back(0);
      axes.push_back(i + 1);
    }
    const Val all = gathered(node, x, by_rank);
    const auto guard = r_.from(node);
    return ops::reshape(ops::permute(all, axes), shape(id));
  }

  const Program& program_;
  const Program leaves_;
  const RankGroup group_;
  const bool divides_rows_;
  Rewriter r_;
  std::vector<Part> parts_;        // by value
  std::map<ValueId, Val> spread_;  // for all parts, by source
};

}  // namespace

std::optional<int> split_axis(std::string_view parameter) {
  // An adapter's A has the columns of the product's weight, and its B the rows.
  if (is_adapter(parameter)) {
    const bool is_a = parameter.ends_with(kAdapterA);
    const std::string_view path = parameter.substr(0, parameter.size() - kAdapterA.size());
    const auto axis = split_axis(std::string(path) + ".weight");
    return axis == (is_a ? 1 : 0) ? axis : std::nullopt;
  }
  for (const Division& d : kDivisions) {
    if (parameter.ends_with(d.suffix)) return d.axis;
  }
  return std::nullopt;
}

Program split(const Program& program, const Parallel& choice) {
  return Split(program, choice).run();
}

Program split(const Program& p, const PassOptions& o) {
  return split(p, o.run.parallel);
}

}  // namespace tracestep

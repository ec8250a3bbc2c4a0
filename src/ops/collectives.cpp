// Collectives are ops like any other; they run on the communicator of the device's group. All ranks
// run the same program, so what differs between them is decided by the communicator alone.
//
// Gradients are those of one loss. Behind a sum that every rank reads alike (all_reduce,
// reduce_scatter), each rank computes the whole of it, or its rows of it: nothing is to be added.
// Each rank reads gathered values for a part of the loss of its own, so their gradients are
// summed.
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"
#include "ops/shared_attrs.h"

namespace tracestep {
namespace ops {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// Returns the attributes of a call: its group, `more`, and when it is issued (analysis/lanes.h).
std::vector<AttrDef> attrs_of_call(std::vector<AttrDef> more = {}) {
  std::vector<AttrDef> out = group_attrs(std::move(more));
  out.push_back(lane_attr());
  out.push_back(batch_attr());
  return out;
}

std::int64_t ranks_of(const OpCall& c) {
  require_lane(c);
  const RankGroup group = group_of(c.attrs);
  if (group.ranks < 1 || group.stride < 1 || group.ranks > kMostRanks / group.stride) {
    fail_usage(c.op, "{} ranks, {} apart; 1 to {} are possible", group.ranks, group.stride,
               kMostRanks);
  }
  return group.ranks;
}

// Returns the type of one rank's part, which is a vector.
std::vector<Type> part_type(const OpCall& c) {
  rules::require_floating(c, 0);
  return {{c.inputs[0].dtype, {part_count(c.inputs[0].count(), ranks_of(c))}}};
}

std::vector<Type> gathered_type(const OpCall& c) {
  if (!is_float8(c.inputs[0].dtype)) rules::require_floating(c, 0);
  const Type out{c.inputs[0].dtype, c.attrs.ints("shape")};
  rules::require_shape(c, 0, {part_count(out.count(), ranks_of(c))});
  if (c.inputs.size() > 1 && c.inputs[1] != out) {
    fail_usage(c.op, "the result {} cannot take the place of {}", out.str(), c.inputs[1].str());
  }
  return {out};
}

// Returns how many additions each rank makes for its part of a sum of `count` elements over ranks.
std::int64_t additions(const OpCall& c, std::int64_t count) {
  const std::int64_t ranks = c.attrs.integer("ranks");
  return (ranks - 1) * part_count(count, ranks);
}

void register_reductions_of_ranks() {
  register_op({.name = "all_reduce",
               .doc = "Sum over all ranks, added up in their order; every rank gets the result.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = attrs_of_call(),
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     ranks_of(c);
                     return rules::same_floating(c);
                   },
               .accepts = rules::contiguous,
               .gradient = [](const OpExpansion& e) { return std::vector{e.output_grads[0]}; },
               .flops = [](const OpCall& c) { return additions(c, c.inputs[0].count()); },
               .donates = {{0, 0}}});
  register_op({.name = "reduce_scatter",
               .doc =
                   "Sum over all ranks, added up in their order; rank r gets the r-th part of it, "
                   "and zeros where the last parts are longer than what is left.",
               .inputs = {"x"},
               .outputs = {"part"},
               .attrs = attrs_of_call(),
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer = part_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](const OpExpansion& e) {
                     return std::vector{e.builder.call1(
                         "all_gather", {e.output_grads[0]},
                         in_group(group_of(e.attrs), {{"shape", e.inputs[0].shape()}}))};
                   },
               .flops = [](const OpCall& c) { return additions(c, c.inputs[0].count()); }});
}

void register_parts() {
  register_op({.name = "all_gather",
               .doc =
                   "The tensor of the parts of all ranks, on every rank. `into` is a tensor whose "
                   "place it may take.",
               .inputs = {"part", "into?"},
               .outputs = {"y"},
               .attrs = attrs_of_call({{"shape", AttrKind::kInts, std::nullopt, "of the tensor"}}),
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer = gathered_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](const OpExpansion& e) {
                     const Val sum = e.builder.call1("reduce_scatter", {e.output_grads[0]},
                                                     in_group(group_of(e.attrs)));
                     return std::vector<Val>{sum, Val{}};
                   },
               .bytes_read = [](const OpCall& c) { return c.inputs[0].bytes(); },
               .donates = {{0, 1}}});
  register_op({.name = "own_part",
               .doc =
                   "The r-th part of a tensor on rank r, and zeros where the last parts are longer "
                   "than what is left.",
               .inputs = {"x"},
               .outputs = {"part"},
               .attrs = group_attrs(),
               .kernel_class = KernelClass::kCollective,  // only a group knows which part it is
               .precision_class = PrecisionClass::kKeep,
               .infer = part_type,
               .accepts = rules::contiguous,
               .bytes_read = [](const OpCall& c) { return c.outputs[0].bytes(); }});
}

void register_first_rank() {
  register_op({.name = "on_first_rank",
               .doc =
                   "x on the first rank of the group; on the others -0, to which any number can be "
                   "added without a change.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = group_attrs(),
               .kernel_class = KernelClass::kCollective,  // only a group knows the rank
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     ranks_of(c);
                     return rules::same_floating(c);
                   },
               .accepts = rules::contiguous,
               .donates = {{0, 0}}});
}

std::vector<Type> own_indices_type(const OpCall& c) {
  const Type& indices = c.inputs[0];
  const DType dtype = c.attrs.dtype("dtype");
  if (indices.dtype != DType::kI64) {
    fail_usage(c.op, "indices are {}; i64 is expected", indices.str());
  }
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    fail_usage(c.op, "dtype {}; f32 or f64 is expected", name_of(dtype));
  }
  if (c.attrs.integer("count") < ranks_of(c)) {
    fail_usage(c.op, "{} ranks have no parts of {}", ranks_of(c), c.attrs.integer("count"));
  }
  return {indices, {dtype, indices.shape}};
}

// Registers the ops of programs whose weights are divided among ranks.
void register_division() {
  register_op(
      {.name = "to_ranks",
       .doc = "x itself, which each rank reads for its part of a result: gradients are summed "
              "over the ranks.",
       .source = "Shoeybi et al. 2019, Megatron-LM, section 3: f",
       .inputs = {"x"},
       .outputs = {"y"},
       .attrs = group_attrs(),
       .kernel_class = KernelClass::kView,
       .precision_class = PrecisionClass::kKeep,
       .infer =
           [](const OpCall& c) {
             ranks_of(c);
             return rules::same_floating(c);
           },
       .view = [](const OpCall&, const Layout& from) { return std::optional<Layout>(from); },
       .gradient =
           [](const OpExpansion& e) {
             return std::vector{
                 e.builder.call1("all_reduce", {e.output_grads[0]}, in_group(group_of(e.attrs)))};
           },
       .cheap_to_recompute = true});
  register_op({.name = "own_indices",
               .doc = "Indices into `count` things as indices into this rank's part of them: 0 for "
                      "those of other ranks, and 1.0 where an index is its own, else 0.0.",
               .inputs = {"indices"},
               .outputs = {"own", "mine"},
               .attrs = group_attrs(
                   {{"count", AttrKind::kInt, std::nullopt, "in all parts"},
                    {"dtype", AttrKind::kDType, AttrValue(DType::kF32), "of the second result"}}),
               .kernel_class = KernelClass::kCollective,  // only a group knows which part it is
               .precision_class = PrecisionClass::kKeep,
               .infer = own_indices_type,
               .accepts = rules::contiguous});
}

}  // namespace

void register_collectives() {
  register_reductions_of_ranks();
  register_parts();
  register_first_rank();
  register_division();
}

std::vector<AttrDef> group_attrs(std::vector<AttrDef> more) {
  more.insert(more.begin(),
              {{"ranks", AttrKind::kInt, std::nullopt, "ranks of the group"},
               {"stride", AttrKind::kInt, AttrValue(std::int64_t{1}), "from one to the next"}});
  return more;
}

}  // namespace ops

RankGroup group_of(const Attrs& attrs) {
  const AttrValue* stride = attrs.find("stride");
  return {attrs.integer("ranks"), stride == nullptr ? 1 : std::get<std::int64_t>(*stride)};
}

Attrs in_group(const RankGroup& group, Attrs attrs) {
  attrs.set("ranks", group.ranks);
  attrs.set("stride", group.stride);
  return attrs;
}

std::int64_t received_bytes(const OpCall& call, std::int64_t rank) {
  const bool adds = call.op.name == "all_reduce" || call.op.name == "reduce_scatter";
  const bool spreads = call.op.name == "all_reduce" || call.op.name == "all_gather";
  if (!adds && !spreads) return 0;
  const Type& whole = adds ? call.inputs[0] : call.outputs[0];
  const RankGroup group = group_of(call.attrs);
  const std::int64_t count = whole.count();
  const std::int64_t own = own_part_of(count, group.ranks, group.index_of(rank)).count;
  const std::int64_t elements = (adds ? (group.ranks - 1) * own : 0) + (spreads ? count - own : 0);
  return elements * static_cast<std::int64_t>(size_of(whole.dtype));
}

}  // namespace tracestep

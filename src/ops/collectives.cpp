// Collectives are ops like any other; they run on the communicator of the device's group. All ranks
// run the same program, so what differs between them is decided by the communicator alone.
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep {
namespace ops {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

AttrDef ranks_attr() {
  return {"ranks", AttrKind::kInt, std::nullopt, "ranks of the group"};
}

std::int64_t ranks_of(const OpCall& c) {
  const std::int64_t ranks = c.attrs.integer("ranks");
  if (ranks < 1 || ranks > kMostRanks) {
    fail_usage(c.op.name, "{} ranks; 1 to {} are possible", ranks, kMostRanks);
  }
  return ranks;
}

// The part of one rank, as a vector.
std::vector<Type> part_type(const OpCall& c) {
  rules::require_floating(c, 0);
  return {{c.inputs[0].dtype, {part_count(c.inputs[0].count(), ranks_of(c))}}};
}

std::vector<Type> gathered_type(const OpCall& c) {
  rules::require_floating(c, 0);
  const Type out{c.inputs[0].dtype, c.attrs.ints("shape")};
  rules::require_shape(c, 0, {part_count(out.count(), ranks_of(c))});
  if (c.inputs.size() > 1 && c.inputs[1] != out) {
    fail_usage(c.op.name, "the result {} cannot take the place of {}", out.str(),
               c.inputs[1].str());
  }
  return {out};
}

// Additions of the rank that owns a part of `count` elements.
std::int64_t additions(const OpCall& c, std::int64_t count) {
  const std::int64_t ranks = c.attrs.integer("ranks");
  return (ranks - 1) * part_count(count, ranks);
}

void register_reductions_of_ranks() {
  register_op({.name = "all_reduce",
               .doc = "Sum over all ranks, added up in their order; every rank gets the result.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {ranks_attr()},
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     ranks_of(c);
                     return rules::same_floating(c);
                   },
               .accepts = rules::contiguous,
               .flops = [](const OpCall& c) { return additions(c, c.inputs[0].count()); },
               .donates = {{0, 0}}});
  register_op({.name = "reduce_scatter",
               .doc =
                   "Sum over all ranks, added up in their order; rank r gets the r-th part of it, "
                   "and zeros where the last parts are longer than what is left.",
               .inputs = {"x"},
               .outputs = {"part"},
               .attrs = {ranks_attr()},
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer = part_type,
               .accepts = rules::contiguous,
               .flops = [](const OpCall& c) { return additions(c, c.inputs[0].count()); }});
}

void register_parts() {
  register_op({.name = "all_gather",
               .doc =
                   "The tensor of the parts of all ranks, on every rank. `into` is a tensor whose "
                   "place it may take.",
               .inputs = {"part", "into?"},
               .outputs = {"y"},
               .attrs = {ranks_attr(), {"shape", AttrKind::kInts, std::nullopt, "of the tensor"}},
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer = gathered_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](const OpExpansion& e) {
                     const Val sum = e.builder.call1("reduce_scatter", {e.output_grads[0]},
                                                     {{"ranks", e.attrs.integer("ranks")}});
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
               .attrs = {ranks_attr()},
               .kernel_class = KernelClass::kCollective,  // only a group knows which part it is
               .precision_class = PrecisionClass::kKeep,
               .infer = part_type,
               .accepts = rules::contiguous,
               .bytes_read = [](const OpCall& c) { return c.outputs[0].bytes(); }});
}

}  // namespace

void register_collectives() {
  register_reductions_of_ranks();
  register_parts();
}

}  // namespace ops

std::int64_t received_bytes(const OpCall& call, std::int64_t rank) {
  const bool adds = call.op.name == "all_reduce" || call.op.name == "reduce_scatter";
  const bool spreads = call.op.name == "all_reduce" || call.op.name == "all_gather";
  if (!adds && !spreads) return 0;
  const Type& whole = adds ? call.inputs[0] : call.outputs[0];
  const std::int64_t ranks = call.attrs.integer("ranks"), count = whole.count();
  const std::int64_t own = own_part_of(count, ranks, rank).count;
  const std::int64_t elements = (adds ? (ranks - 1) * own : 0) + (spreads ? count - own : 0);
  return elements * static_cast<std::int64_t>(size_of(whole.dtype));
}

}  // namespace tracestep

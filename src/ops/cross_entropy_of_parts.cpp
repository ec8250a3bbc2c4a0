// Mean cross-entropy where every rank has the logits of its part of the vocabulary: the sums over a
// row are put together from those of the ranks, and no rank ever holds a whole row.
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "ops/ignored_targets.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

constexpr Phase kCommunication = Phase::kCommunication;

std::vector<Type> loss_type(const OpCall& c) {
  const Type& logits = c.inputs[0];
  rules::require_floating(c, 0);
  if (logits.shape.rank() != 2 || logits.count() == 0) {
    fail_usage(c.op, "logits are {}; non-empty [N,V/ranks] is expected", logits.str());
  }
  rules::require_integer(c, 1);
  rules::require_shape(c, 1, {logits.shape[0]});
  const DType wide = rules::accumulation_dtype(logits.dtype);
  if (c.inputs.size() > 2) rules::require_shape(c, 2, {});
  return {{wide, {}}, {wide, {logits.shape[0]}}};
}

std::vector<AttrDef> attributes() {
  std::vector<AttrDef> out = group_attrs();
  out.push_back(ignore_index_attr());
  return out;
}

struct OwnTargets {
  Val index, mine;  // both [N]
};

// Returns targets as indices into this rank's columns, 0 for ignored ones (`none` marks these).
OwnTargets own_targets(Expansion e, const Val& none, DType dtype) {
  const RankGroup group = group_of(e.attrs);
  const auto out = e.builder.call(
      find_op("own_indices"), {without_ignored(e, e.inputs[1], none)},
      in_group(group, {{"count", group.ranks * e.inputs[0].dim(1)}, {"dtype", dtype}}));
  return {out[0], out[1]};
}

// Adds a collective with the origin of the node before it.
Val collective(Expansion e, std::string_view op, Val x, Attrs attrs = {}) {
  const auto guard = e.builder.like(e.builder.program().nodes.back(), &kCommunication);
  return e.builder.call1(op, {x}, in_group(group_of(e.attrs), std::move(attrs)));
}

// Joins the log-sum-exps of all ranks' columns; a target's logit comes from the rank that has it.
std::vector<Val> loss_decomposed(Expansion e) {
  const Val logits = cast(e.inputs[0], rules::accumulation_dtype(e.inputs[0].dtype()));
  const std::int64_t rows = logits.dim(0), ranks = group_of(e.attrs).ranks;
  const Val count = count_of(e, 2), none = ignored(e, e.inputs[1], count);
  const OwnTargets own = own_targets(e, none, logits.dtype());
  const Val hits = sum(without_ignored(e, mul(take_along(logits, own.index), own.mine), none), {0});
  const Val all_hits = collective(e, "all_reduce", hits);
  const Val sums = log_sum_exp(logits);
  const Val all_sums = collective(e, "all_gather", sums, {{"shape", Shape{ranks, rows}}});
  const Val lse = log_sum_exp(permute(all_sums, {1, 0}));
  const Val all = sub(sum(without_ignored(e, lse, none), {0}), all_hits);
  return {count ? div(all, count) : affine(all, 1.0 / static_cast<double>(rows)), lse};
}

// Returns the gradient dloss/N · (exp(logits - lse) - onehot(target)), with lse of whole rows, for
// the rank's own columns.
std::vector<Val> loss_gradient(Expansion e) {
  if (e.output_grads[1]) {
    fail_usage("cross_entropy_of_parts", "no gradient flows through the second result");
  }
  const Val lse = e.outputs[1];
  const Val logits = cast(e.inputs[0], lse.dtype());
  const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
  const Val count = count_of(e, 2), none = ignored(e, e.inputs[1], count);
  const OwnTargets own = own_targets(e, none, logits.dtype());
  const Val p = unary("exp", sub(logits, reshape(lse, {rows, 1})));
  const Val hit = e.builder.call1("put_along", {own.mine, own.index}, {{"size", columns}});
  const Val scale = count ? div(e.output_grads[0], count)
                          : affine(e.output_grads[0], 1.0 / static_cast<double>(rows));
  std::vector<Val> out(e.inputs.size());
  out[0] = cast(without_ignored(e, mul(sub(p, hit), scale), none), e.inputs[0].dtype());
  return out;
}

}  // namespace

void register_cross_entropy_of_parts() {
  register_op({.name = "cross_entropy_of_parts",
               .doc = "cross_entropy of rows of which every rank has its columns [N,V/ranks]; with "
                      "count, all ranks' targets and count are the same.",
               .source = "Shoeybi et al. 2019, Megatron-LM, section 3",
               .inputs = {"logits", "targets", "count?"},
               .outputs = {"loss", "lse"},
               .attrs = attributes(),
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .infer = loss_type,
               .accepts = rules::contiguous,
               .gradient = loss_gradient,
               .decompose = loss_decomposed,
               .flops = rules::per_operand(0, 4),
               .always_decompose = true,
               .stays_whole = true});
}

}  // namespace tracestep::ops

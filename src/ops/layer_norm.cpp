// Layer normalisation over the last axis; statistics in float32 for every dtype of x.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// Checks operand number `x` and, from number `weight` on, `weights` operands of shape [width].
void check(const OpCall& c, int x, int weight, int weights) {
  rules::require_min_rank(c, x, 1);
  rules::require_floating(c, x);
  for (int i = weight; i < weight + weights; ++i) {
    rules::require_floating(c, i);
    rules::require_shape(c, i, {c.inputs[static_cast<std::size_t>(x)].shape.back()});
    rules::require_same_dtype(c, weight, i);
  }
}

std::vector<Type> forward_type(const OpCall& c) {
  check(c, 0, 1, static_cast<int>(c.inputs.size()) - 1);
  const Type& x = c.inputs[0];
  const Type statistic{rules::accumulation_dtype(x.dtype), rules::rows_of(x.shape)};
  return {x, statistic, statistic};
}

std::vector<Type> gradient_type(const OpCall& c) {
  check(c, 1, 2, 1);
  rules::require_same_dtype(c, 0, 1);
  rules::require_shape(c, 0, c.inputs[1].shape);
  for (int i : {3, 4}) rules::require_shape(c, i, rules::rows_of(c.inputs[1].shape));
  return {c.inputs[1], c.inputs[2], c.inputs[2]};
}

Val mean_of(Val x) {
  return affine(sum(x, {x.shape().rank() - 1}, true), 1.0 / static_cast<double>(x.dim(-1)));
}

// Normalises by simpler ops: the mean first, then the mean square of differences; nothing cancels.
std::vector<Val> decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const DType wide = rules::accumulation_dtype(x.dtype());
  const Val xw = cast(x, wide), mean = mean_of(xw), apart = sub(xw, mean);
  const Val rstd =
      unary("rsqrt", affine(mean_of(unary("square", apart)), 1.0, e.attrs.real("eps")));
  Val y = mul(cast(e.inputs[1], wide), mul(apart, rstd));
  if (e.inputs.size() > 2) y = add(y, cast(e.inputs[2], wide));
  const Shape rows = rules::rows_of(x.shape());
  return {cast(y, x.dtype()), reshape(mean, rows), reshape(rstd, rows)};
}

std::vector<Val> gradient_decomposed(Expansion e) {
  const Val x = e.inputs[1];
  const DType wide = rules::accumulation_dtype(x.dtype());
  const Shape column = rules::column_of(x.shape());
  const Val dy = cast(e.inputs[0], wide), mean = reshape(e.inputs[3], column),
            rstd = reshape(e.inputs[4], column);
  const Val normed = mul(sub(cast(x, wide), mean), rstd);
  const Val dnormed = mul(dy, cast(e.inputs[2], wide));
  const Dims rows = rules::all_but_last(x.shape());
  const Val dw = sum(mul(dy, normed), rows), db = sum(dy, rows);
  const Val centred =
      sub(sub(dnormed, mean_of(dnormed)), mul(normed, mean_of(mul(dnormed, normed))));
  const DType weight = e.inputs[2].dtype();
  return {cast(mul(centred, rstd), x.dtype()), cast(dw, weight), cast(db, weight)};
}

std::vector<Val> forward_gradient(Expansion e) {
  if (e.output_grads[1] || e.output_grads[2]) {
    fail_usage("layer_norm", "no gradient flows through the statistics");
  }
  std::vector<Val> out =
      e.builder.call(find_op("layer_norm_grad"),
                     {e.output_grads[0], e.inputs[0], e.inputs[1], e.outputs[1], e.outputs[2]});
  out.resize(e.inputs.size());
  return out;
}

}  // namespace

void register_layer_norm() {
  register_op({.name = "layer_norm",
               .doc = "y = w · (x - mean) / √(variance + eps) + b; also mean and 1/√(…) per row, "
                      "kept for backward.",
               .source = "Ba, Kiros and Hinton 2016, eq. 4",
               .inputs = {"x", "w", "b?"},
               .outputs = {"y", "mean", "rstd"},
               .attrs = {{"eps", AttrKind::kReal, AttrValue(1e-5), "added to the variance"}},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kNorm,
               .infer = forward_type,
               .accepts = rules::contiguous,
               .gradient = forward_gradient,
               .decompose = decomposed,
               .flops = rules::per_result(7)});

  register_op({.name = "layer_norm_grad",
               .doc = "Gradients of x, w and b from x and the saved statistics of its rows.",
               .inputs = {"dy", "x", "w", "mean", "rstd"},
               .outputs = {"dx", "dw", "db"},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kNorm,
               .infer = gradient_type,
               .accepts = rules::contiguous,
               .decompose = gradient_decomposed,
               .flops = rules::per_result(14),
               .donates = {{0, 0}}});
}

}  // namespace tracestep::ops

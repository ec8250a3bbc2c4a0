// Root-mean-square normalisation over the last axis; statistics in float32 for every dtype of x.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

void check_weight(const OpCall& c, int x, int weight) {
  const Type& type = c.inputs[static_cast<std::size_t>(x)];
  rules::require_min_rank(c, x, 1);
  rules::require_floating(c, x);
  rules::require_floating(c, weight);
  rules::require_shape(c, weight, {type.shape.back()});
}

std::vector<Type> forward_type(const OpCall& c) {
  check_weight(c, 0, 1);
  const Type& x = c.inputs[0];
  return {x, {rules::accumulation_dtype(x.dtype), rules::rows_of(x.shape)}};
}

std::vector<Type> gradient_type(const OpCall& c) {
  check_weight(c, 1, 2);
  rules::require_same_dtype(c, 0, 1);
  rules::require_shape(c, 0, c.inputs[1].shape);
  rules::require_shape(c, 3, rules::rows_of(c.inputs[1].shape));
  return {c.inputs[1], c.inputs[2]};
}

std::vector<Val> decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const DType wide = rules::accumulation_dtype(x.dtype());
  const Val xw = cast(x, wide), w = cast(e.inputs[1], wide);
  const auto width = static_cast<double>(x.dim(-1));
  const Val squares = sum(unary("square", xw), {x.shape().rank() - 1}, true);
  const Val rstd = unary("rsqrt", affine(squares, 1.0 / width, e.attrs.real("eps")));
  return {cast(mul(w, mul(xw, rstd)), x.dtype()), reshape(rstd, rules::rows_of(x.shape()))};
}

std::vector<Val> gradient_decomposed(Expansion e) {
  const Val x = e.inputs[1];
  const DType wide = rules::accumulation_dtype(x.dtype());
  const Val dy = cast(e.inputs[0], wide), xw = cast(x, wide), w = cast(e.inputs[2], wide);
  const Val rstd = reshape(e.inputs[3], rules::column_of(x.shape()));
  const Val normed = mul(xw, rstd);
  const Val dnormed = mul(dy, w);
  const Val dw = sum(mul(dy, normed), rules::all_but_last(x.shape()));
  const Val inner = affine(sum(mul(dnormed, normed), {x.shape().rank() - 1}, true),
                           1.0 / static_cast<double>(x.dim(-1)));
  const Val dx = mul(sub(dnormed, mul(normed, inner)), rstd);
  return {cast(dx, x.dtype()), cast(dw, e.inputs[2].dtype())};
}

}  // namespace

void register_rms_norm() {
  register_op({.name = "rms_norm",
               .doc = "y = w · x / √(mean(x²) + eps); also 1/√(…) per row, kept for backward.",
               .source = "Zhang and Sennrich 2019, eq. 4",
               .inputs = {"x", "w"},
               .outputs = {"y", "rstd"},
               .attrs = {{"eps", AttrKind::kReal, AttrValue(1e-5), "added to the mean square"}},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kNorm,
               .infer = forward_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](Expansion e) {
                     if (e.output_grads[1]) {
                       fail_usage("rms_norm", "no gradient flows through the second result");
                     }
                     return e.builder.call(
                         find_op("rms_norm_grad"),
                         {e.output_grads[0], e.inputs[0], e.inputs[1], e.outputs[1]});
                   },
               .decompose = decomposed,
               .flops = rules::per_result(4)});

  register_op({.name = "rms_norm_grad",
               .doc = "Gradients of x and w from x and the saved 1/√(mean square).",
               .inputs = {"dy", "x", "w", "rstd"},
               .outputs = {"dx", "dw"},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kNorm,
               .infer = gradient_type,
               .accepts = rules::contiguous,
               .decompose = gradient_decomposed,
               .flops = rules::per_result(10),
               .donates = {{0, 0}}});
}

}  // namespace tracestep::ops

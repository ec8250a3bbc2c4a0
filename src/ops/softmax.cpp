// Softmax and log-sum-exp over the last axis, with scale and causal mask folded in.
#include <cmath>
#include <limits>

#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> softmax_type(const OpCall& c) {
  rules::require_floating(c, 0);
  rules::require_min_rank(c, 0, c.attrs.flag("causal") ? 2 : 1);
  if (c.inputs.size() > 1) {
    rules::require_integer(c, 1);
    rules::require_shape(c, 1, {});
  }
  return {c.inputs[0]};
}

std::vector<Val> softmax_decomposed(Expansion e) {
  Val x = e.inputs[0];
  const Dims last{x.shape().rank() - 1};
  if (e.attrs.real("scale") != 1.0) x = affine(x, e.attrs.real("scale"));
  if (e.attrs.flag("causal")) {
    const Val mask =
        causal_mask(e.builder, x.dim(-2), x.dim(-1), e.inputs.size() > 1 ? e.inputs[1] : Val{});
    const double hidden = -std::numeric_limits<double>::infinity();
    x = select(mask, x, fill(e.builder, hidden, {x.dtype(), {}}));
  }
  // The shift by the maximum cancels in the result, so no gradient flows through it.
  const Val shifted = sub(x, stop_gradient(max(x, last, true)));
  const Val exponentials = unary("exp", shifted);
  return {div(exponentials, sum(exponentials, last, true))};
}

std::vector<Val> softmax_grad_decomposed(Expansion e) {
  const Val dy = e.inputs[0], y = e.inputs[1];
  const Val inner = sum(mul(dy, y), {y.shape().rank() - 1}, true);
  return {affine(mul(sub(dy, inner), y), e.attrs.real("scale"))};
}

const AttrDef kScale{"scale", AttrKind::kReal, AttrValue(1.0),
                     "factor on x before the exponential"};

void register_softmax_pair() {
  register_op({.name = "softmax",
               .doc = "exp(scale·x) over its sum along the last axis; causal hides columns "
                      "j > i + (Tk - Tq), or j > i + position.",
               .source = "Vaswani et al. 2017, eq. 1",
               .inputs = {"x", "position?"},
               .outputs = {"y"},
               .attrs = {kScale, {"causal", AttrKind::kBool, AttrValue(false), "hide the future"}},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kSoftmax,
               .infer = softmax_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](Expansion e) {
                     return std::vector{
                         e.builder.call1("softmax_grad", {e.output_grads[0], e.outputs[0]},
                                         {{"scale", e.attrs.real("scale")}}),
                         Val{}};
                   },
               .decompose = softmax_decomposed,
               .flops = rules::per_result(6),
               .donates = {{0, 0}}});

  register_op({.name = "softmax_grad",
               .doc = "scale · y ∘ (dy - Σ dy∘y), the gradient of softmax from its result.",
               .inputs = {"dy", "y"},
               .outputs = {"dx"},
               .attrs = {kScale},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kSoftmax,
               .infer = rules::same_floating,
               .accepts = rules::contiguous,
               .decompose = softmax_grad_decomposed,
               .flops = rules::per_result(5),
               .donates = {{0, 0}}});
}

std::vector<Val> log_sum_exp_decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const Dims last{x.shape().rank() - 1};
  const Val top = stop_gradient(max(x, last, true));
  const Val total = unary("log", sum(unary("exp", sub(x, top)), last, true));
  Shape rows = x.shape();
  rows = Shape(std::span(rows.begin(), static_cast<std::size_t>(rows.rank() - 1)));
  return {reshape(add(total, top), rows)};
}

void register_log_sum_exp() {
  register_op({.name = "log_sum_exp",
               .doc = "log Σ exp(x) along the last axis, shifted by the maximum.",
               .inputs = {"x"},
               .outputs = {"y"},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .fusion = Fusion::kRows,
               .composite = Composite::kLoss,
               .infer =
                   [](const OpCall& c) {
                     rules::require_floating(c, 0);
                     rules::require_min_rank(c, 0, 1);
                     const Shape& s = c.inputs[0].shape;
                     return std::vector{
                         Type{c.inputs[0].dtype,
                              Shape(std::span(s.begin(), static_cast<std::size_t>(s.rank() - 1)))}};
                   },
               .accepts = rules::contiguous,
               .gradient =
                   [](Expansion e) {
                     const Val x = e.inputs[0];
                     Shape kept = x.shape();
                     kept[kept.rank() - 1] = 1;
                     return std::vector{mul(softmax(x), reshape(e.output_grads[0], kept))};
                   },
               .decompose = log_sum_exp_decomposed,
               .flops = rules::per_operand(0, 4)});
}

}  // namespace

namespace {

// Rows and columns of a mask, and how many columns row 0 sees before its own.
struct MaskIndices {
  MaskIndices(Builder& b, std::int64_t rows, std::int64_t cols, Val position)
      : row(iota(b, {DType::kI64, {rows, cols}}, 0)),
        col(iota(b, {DType::kI64, {rows, cols}}, 1)),
        offset(position ? position : fill(b, static_cast<double>(cols - rows), {DType::kI64, {}})) {
  }
  Val row, col, offset;
};

}  // namespace

Val causal_mask(Builder& b, std::int64_t rows, std::int64_t cols, Val position) {
  const MaskIndices m(b, rows, cols, position);
  return binary("le", m.col, add(m.row, m.offset));
}

Val window_mask(Builder& b, std::int64_t rows, std::int64_t cols, std::int64_t window,
                Val position) {
  const MaskIndices m(b, rows, cols, position);
  const Val before = fill(b, static_cast<double>(window), {DType::kI64, {}});
  return binary("lt", add(m.row, m.offset), add(m.col, before));
}

void register_softmax() {
  register_softmax_pair();
  register_log_sum_exp();
}

}  // namespace tracestep::ops

// Scaled dot-product attention; the naive form is two matrix products around a softmax.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> attention_type(const OpCall& c) {
  for (int i = 0; i < 3; ++i) {
    rules::require_floating(c, i);
    rules::require_same_dtype(c, 0, i);
    rules::require_min_rank(c, i, 2);
  }
  const Shape& q = c.inputs[0].shape;
  Shape kv = q;
  if (c.inputs[1].shape.rank() == q.rank()) kv[q.rank() - 2] = c.inputs[1].shape.back(1);
  rules::require_shape(c, 1, kv);
  rules::require_shape(c, 2, kv);
  return {c.inputs[0]};
}

std::vector<Val> naive(Expansion e) {
  Builder& b = e.builder;
  Val scores, weights;
  {
    const auto guard = b.scope("scores");
    scores = matmul(e.inputs[0], e.inputs[1], {.transpose_b = true});
  }
  {
    const auto guard = b.scope("softmax");
    weights = softmax(scores, {e.attrs.real("scale"), e.attrs.flag("causal")},
                      e.inputs.size() > 3 ? e.inputs[3] : Val{});
  }
  const auto guard = b.scope("values");
  return {matmul(weights, e.inputs[2])};
}

std::int64_t attention_flops(const OpCall& c) {
  const Shape& q = c.inputs[0].shape;
  const std::int64_t scores = q.product() / q.back() * c.inputs[1].shape.back(1);
  return 4 * scores * q.back() + 6 * scores;
}

}  // namespace

void register_attention() {
  register_op({.name = "attention",
               .doc = "softmax(scale · q kᵀ) v over [..., T, D], causal or not.",
               .source = "Vaswani et al. 2017, eq. 1",
               .inputs = {"q", "k", "v", "position?"},
               .outputs = {"y"},
               .attrs = {{"scale", AttrKind::kReal, std::nullopt, "factor on the scores"},
                         {"causal", AttrKind::kBool, AttrValue(true), "hide the future"}},
               .kernel_class = KernelClass::kAttention,
               .precision_class = PrecisionClass::kLow,
               .infer = attention_type,
               .accepts = rules::any_strides,
               .decompose = naive,
               .flops = attention_flops,
               .always_decompose = true});
}

}  // namespace tracestep::ops

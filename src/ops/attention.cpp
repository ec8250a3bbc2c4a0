// Scaled dot-product attention; the naive form is two matrix products around a softmax.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> attention_type(const OpCall& c) {
  rules::require_attention_operands(c, 0);
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

// With `position` the naive form is used: flash_attention does not take one, and the few queries of
// decoding need no tiling. With heads its result is [..., T, H, D], rows for the next projection.
std::vector<Val> flash(Expansion e) {
  if (e.inputs.size() > 3) return naive(e);
  const auto guard = e.builder.scope("flash");
  const int rank = e.inputs[0].shape().rank();
  const bool has_heads = rank >= 4;
  const Val y = e.builder.call(find_op("flash_attention"), {e.inputs.begin(), e.inputs.end()},
                               {{"scale", e.attrs.real("scale")},
                                {"causal", e.attrs.flag("causal")},
                                {"token_major", has_heads}})[0];
  if (!has_heads) return {y};
  Dims axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[rank - 3], axes[rank - 2]);
  return {permute(y, axes)};
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
               .forms = {{"naive", naive}, {"flash", flash}},
               .flops = attention_flops,
               .always_decompose = true});
}

}  // namespace tracestep::ops

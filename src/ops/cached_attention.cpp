// Attention of a few queries over a cache of keys and values, as decoding has it.
#include "ops/attention_sizes.h"
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

// [..., H, n, D] ↔ [..., n, H, D]
Dims heads_behind_tokens(int rank) {
  Dims axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[rank - 3], axes[rank - 2]);
  return axes;
}

std::vector<Type> result_type(const OpCall& c) {
  rules::require_attention_operands(c, 0);
  rules::require_min_rank(c, 0, 3);
  if (c.inputs[0].shape.rank() > 4) {
    fail_usage(c.op.name, "{} axes; [B, H, n, D], or without B", c.inputs[0].shape.rank());
  }
  rules::require_integer(c, 3);
  rules::require_shape(c, 3, {});
  Shape shape = c.inputs[0].shape;
  if (shape.back() < 1 || shape.back() > kMostFlashWidth) {
    fail_usage(c.op.name, "a head's width of {}; 1 to {}, or naive attention", shape.back(),
               kMostFlashWidth);
  }
  if (c.attrs.integer("window") < 0) {
    fail_usage(c.op.name, "a window of {} tokens; 0 means none", c.attrs.integer("window"));
  }
  std::swap(shape[shape.rank() - 3], shape[shape.rank() - 2]);
  return {{c.inputs[0].dtype, shape}};
}

std::vector<Val> decomposed(const OpExpansion& e) {
  const Val y = e.builder.call1("attention", {e.inputs.begin(), e.inputs.end()},
                                {{"scale", e.attrs.real("scale")},
                                 {"cap", e.attrs.real("cap")},
                                 {"window", e.attrs.integer("window")}});
  return {permute(y, heads_behind_tokens(y.shape().rank()))};
}

bool unit_rows(int input, const Type& type, const Strides& strides) {
  return input == 3 || rules::unit_inner_stride(input, type, strides);
}

}  // namespace

Val cached_attention(const OpExpansion& e) {
  const Val y = e.builder.call1("cached_attention", {e.inputs.begin(), e.inputs.end()},
                                {{"scale", e.attrs.real("scale")},
                                 {"cap", e.attrs.real("cap")},
                                 {"window", e.attrs.integer("window")}});
  return permute(y, heads_behind_tokens(y.shape().rank()));
}

void register_cached_attention() {
  register_op({.name = "cached_attention",
               .doc = "softmax(scale · q kᵀ) v of n queries [..., H, n, D], of which query i sees "
                      "keys j <= position + i, as [..., n, H, D]. k and v [..., H/group, T, D] are "
                      "caches, and each is read once for the heads of a group.",
               .source = "Dao et al. 2023, Flash-Decoding",
               .inputs = {"q", "k", "v", "position"},
               .outputs = {"y"},
               .attrs = {{"scale", AttrKind::kReal, std::nullopt, "factor on the scores"},
                         {"cap", AttrKind::kReal, AttrValue(0.0),
                          "scores s become cap · tanh(s / cap); 0: they stay"},
                         {"window", AttrKind::kInt, AttrValue(std::int64_t{0}),
                          "keys that a query sees, its own the last; 0: all"}},
               .kernel_class = KernelClass::kAttention,
               .precision_class = PrecisionClass::kLow,
               .infer = result_type,
               .accepts = unit_rows,
               .decompose = decomposed,
               .flops =
                   [](const OpCall& c) {
                     const AttentionSizes a = attention_sizes(c.inputs[0], c.inputs[1]);
                     return 4 * a.heads * a.queries * a.keys * a.width;
                   },
               .only_on_gpus = true,
               .stays_whole = true});
}

}  // namespace tracestep::ops

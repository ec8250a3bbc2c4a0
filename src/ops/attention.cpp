// Scaled dot-product attention; the naive form is two matrix products around a softmax.
#include <limits>

#include "ops/functions.h"
#include "ops/grouped_heads.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> attention_type(const OpCall& c) {
  rules::require_attention_operands(c, 0);
  if (c.attrs.integer("window") < 0) {
    fail_usage(c.op, "a window of {} tokens; 0 means none", c.attrs.integer("window"));
  }
  return {c.inputs[0]};
}

bool has_window(const Attrs& attrs) {
  return attrs.integer("window") > 0;
}

// Returns the scores scale · x, capped; scores of keys before a row's window are -inf.
Val limited(Expansion e, Val x, Val position) {
  Builder& b = e.builder;
  x = affine(x, e.attrs.real("scale"));
  if (const double cap = e.attrs.real("cap"); cap > 0.0) {
    x = affine(unary("tanh", affine(x, 1.0 / cap)), cap);
  }
  if (!has_window(e.attrs)) return x;
  const Val is_seen = window_mask(b, x.dim(-2), x.dim(-1), e.attrs.integer("window"), position);
  const double hidden = -std::numeric_limits<double>::infinity();
  return select(is_seen, x, fill(b, hidden, {x.dtype(), {}}));
}

// Computes attention by matrix products. `starts`: of documents; none: each row is one text.
std::vector<Val> by_products(Expansion e, bool causal, Val position, Val starts) {
  Builder& b = e.builder;
  const Val q = e.inputs[0], k = e.inputs[1], v = e.inputs[2];
  const std::int64_t group = attention_group(q.shape(), k.shape());
  const bool is_plain = !has_window(e.attrs) && e.attrs.real("cap") == 0.0 && !starts;
  Val scores, weights;
  {
    const auto guard = b.scope("scores");
    scores = rows_separated(matmul(rows_grouped(q, group), k, {.transpose_b = true}), group);
    if (!is_plain) scores = limited(e, scores, position);
    if (starts) scores = in_document(scores, starts);
  }
  {
    const auto guard = b.scope("softmax");
    weights = softmax(scores, {is_plain ? e.attrs.real("scale") : 1.0, causal}, position);
  }
  const auto guard = b.scope("values");
  return {rows_separated(matmul(rows_grouped(weights, group), v), group)};
}

std::vector<Val> naive(Expansion e) {
  return by_products(e, e.attrs.flag("causal"), e.inputs.size() > 3 ? e.inputs[3] : Val{}, {});
}
std::vector<Val> naive_of_documents(Expansion e) {
  return by_products(e, true, {}, e.inputs[3]);
}

// Computes attention by the op flash_attention. `operands`: q, k, v, perhaps bounds of documents.
// With heads the op writes [..., T, H, D], as the next projection reads it; returned is a view.
std::vector<Val> in_tiles(Expansion e, const std::vector<Val>& operands, bool causal) {
  const int rank = e.inputs[0].shape().rank();
  const auto guard = e.builder.scope("flash");
  const bool has_heads = rank >= 4;
  const Val y = e.builder.call(find_op("flash_attention"), operands,
                               {{"scale", e.attrs.real("scale")},
                                {"causal", causal},
                                {"token_major", has_heads},
                                {"window", e.attrs.integer("window")},
                                {"cap", e.attrs.real("cap")}})[0];
  if (!has_heads) return {y};
  Dims axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[rank - 3], axes[rank - 2]);
  return {permute(y, axes)};
}
std::vector<Val> tiles_of_documents(Expansion e) {
  return in_tiles(e, {e.inputs.begin(), e.inputs.end()}, true);
}

// Computes attention by flash_attention, or by products where that has no tiles: with `position`,
// and for windows that see the future.
std::vector<Val> flash(Expansion e) {
  const bool causal = e.attrs.flag("causal"), has_no_tiles = has_window(e.attrs) && !causal;
  if (e.inputs.size() > 3 || has_no_tiles) return naive(e);
  return in_tiles(e, {e.inputs[0], e.inputs[1], e.inputs[2]}, causal);
}

std::int64_t attention_flops(const OpCall& c) {
  const Shape& q = c.inputs[0].shape;
  const std::int64_t scores = q.product() / q.back() * c.inputs[1].shape.back(1);
  return 4 * scores * q.back() + 6 * scores;
}

std::vector<Type> of_documents_type(const OpCall& c) {
  rules::require_attention_operands(c, 0);
  for (const int i : {3, 4}) rules::require_integer(c, i);
  return {c.inputs[0]};
}

std::vector<AttrDef> attributes(std::initializer_list<AttrDef> more) {
  std::vector<AttrDef> out{
      {"scale", AttrKind::kReal, std::nullopt, "factor on the scores"},
      {"cap", AttrKind::kReal, AttrValue(0.0), "scores s become cap · tanh(s / cap); 0: they stay"},
      {"window", AttrKind::kInt, AttrValue(std::int64_t{0}),
       "keys that a query sees, its own the last; 0: all"}};
  out.insert(out.begin() + 1, more.begin(), more.end());
  return out;
}

void register_of_documents() {
  register_op({.name = "attention_of_documents",
               .doc = "Causal attention of rows of documents, which begin and end at starts and "
                      "ends, given for each place: a query sees the keys of its own.",
               .source = "Krell et al. 2021, Efficient sequence packing, section 3.2.2",
               .inputs = {"q", "k", "v", "starts", "ends"},
               .outputs = {"y"},
               .attrs = attributes({}),
               .kernel_class = KernelClass::kAttention,
               .precision_class = PrecisionClass::kLow,
               .infer = of_documents_type,
               .accepts = rules::any_strides,
               .decompose = naive_of_documents,
               .forms = {{"naive", naive_of_documents}, {"flash", tiles_of_documents}},
               .flops = attention_flops,
               .always_decompose = true});
}

}  // namespace

void register_attention() {
  register_of_documents();
  register_op(
      {.name = "attention",
       .doc = "softmax(scale · q kᵀ) v over [..., T, D], causal or not. k and v may have "
              "fewer heads, each for a group of q's.",
       .source = "Vaswani et al. 2017, eq. 1",
       .inputs = {"q", "k", "v", "position?"},
       .outputs = {"y"},
       .attrs = attributes({{"causal", AttrKind::kBool, AttrValue(true), "hide the future"}}),
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

// Attention tile by tile, without the matrix of scores in memory, and its gradient, which computes
// the scores again from q, k and the log-sum-exp of their rows.
#include <algorithm>
#include <limits>
#include <utility>

#include "ops/attention_sizes.h"
#include "ops/functions.h"
#include "ops/grouped_heads.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// Swaps the axes of heads and tokens: [..., H, T, D] ↔ [..., T, H, D].
Shape heads_moved(Shape shape) {
  std::swap(shape[shape.rank() - 3], shape[shape.rank() - 2]);
  return shape;
}
Val heads_moved(Val x) {
  Dims axes;
  for (int i = 0; i < x.shape().rank(); ++i) axes.push_back(i);
  return permute(x, heads_moved(axes));
}

bool is_token_major(const Attrs& attrs) {
  return attrs.flag("token_major");
}

// Returns how many keys a query sees, its own and those right before it; 0: all keys up to its own.
std::int64_t window_of(const Attrs& attrs) {
  return attrs.integer("window");
}

// Returns the type of a result like `x`: that of `x`, or with tokens before heads if token_major.
Type result_type(const OpCall& c, const Type& x) {
  return is_token_major(c.attrs) ? Type{x.dtype, heads_moved(x.shape)} : x;
}

Type lse_type(const Type& q) {
  const Shape& s = q.shape;
  return {rules::accumulation_dtype(q.dtype),
          Shape(std::span(s.begin(), static_cast<std::size_t>(s.rank() - 1)))};
}

// Returns the index of the first bounds of documents among operands; 0: none. `q`: the index of q.
std::size_t bounds_at(std::size_t operands, int q) {
  const std::size_t without = q == 0 ? 3 : 6;
  return operands > without ? without : 0;
}

// Returns the shape of one number per position of each text: q [..., H, T, D] → [..., T].
Shape places_of(const Shape& q) {
  Shape out(std::span(q.begin(), static_cast<std::size_t>(std::max(q.rank() - 3, 0))));
  out.push_back(q.back(1));
  return out;
}

// Checks the bounds of documents, which need causal attention of as many queries as keys, if any.
void check_bounds(const OpCall& c, int q) {
  const std::size_t at = bounds_at(c.inputs.size(), q);
  if (at == 0) return;
  const Shape& shape = c.inputs[static_cast<std::size_t>(q)].shape;
  if (c.inputs.size() != at + 2) fail_usage(c.op, "documents need both starts and ends");
  if (!c.attrs.flag("causal") ||
      shape.back(1) != c.inputs[static_cast<std::size_t>(q) + 1].shape.back(1)) {
    fail_usage(c.op, "documents need causal attention of as many queries as keys");
  }
  for (int i = static_cast<int>(at); i < static_cast<int>(at) + 2; ++i) {
    rules::require_shape(c, i, places_of(shape));
    if (c.inputs[static_cast<std::size_t>(i)].dtype == DType::kI64) continue;
    fail_usage(c.op, "bounds of documents are i64, not {}",
               name_of(c.inputs[static_cast<std::size_t>(i)].dtype));
  }
}

void check_operands(const OpCall& c, int q) {
  rules::require_attention_operands(c, q);
  check_bounds(c, q);
  const Shape& shape = c.inputs[static_cast<std::size_t>(q)].shape;
  if (is_token_major(c.attrs)) rules::require_min_rank(c, q, 3);
  if (shape.back() < 1 || shape.back() > kMostFlashWidth) {
    fail_usage(c.op, "the width {} does not fit a tile; 1 to {}, or naive attention", shape.back(),
               kMostFlashWidth);
  }
  const std::int64_t queries = shape.back(1);
  const std::int64_t keys = c.inputs[static_cast<std::size_t>(q) + 1].shape.back(1);
  if (c.attrs.flag("causal") && queries > keys) {
    fail_usage(c.op,
               "{} queries with {} keys: the first {} see no key; causal needs as many "
               "keys as queries",
               queries, keys, queries - keys);
  }
  if (window_of(c.attrs) < 0 || (window_of(c.attrs) > 0 && !c.attrs.flag("causal"))) {
    fail_usage(c.op, "a window of {} keys{}; a window counts back from a query's own key",
               window_of(c.attrs), c.attrs.flag("causal") ? "" : " without causal");
  }
  if (c.attrs.real("cap") < 0.0) fail_usage(c.op, "a cap of {}", c.attrs.real("cap"));
}

std::vector<Type> forward_type(const OpCall& c) {
  check_operands(c, 0);
  return {result_type(c, c.inputs[0]), lse_type(c.inputs[0])};
}

std::vector<Type> gradient_type(const OpCall& c) {
  check_operands(c, 1);
  const Type& q = c.inputs[1];
  for (int i : {0, 4}) {
    rules::require_same_dtype(c, 1, i);
    rules::require_shape(c, i, result_type(c, q).shape);
  }
  rules::require_shape(c, 5, lse_type(q).shape);
  return {result_type(c, q), result_type(c, c.inputs[2]), result_type(c, c.inputs[3])};
}

// True if backward reads an operand with these strides: rows at any stride, the rest contiguous.
bool rows_and_statistics(int input, const Type& type, const Strides& strides) {
  return input < 5 ? rules::unit_inner_stride(input, type, strides)
                   : rules::contiguous(input, type, strides);
}
// True if forward reads an operand with these strides: rows at any stride, bounds contiguous.
bool rows_and_bounds(int input, const Type& type, const Strides& strides) {
  return input < 3 ? rules::unit_inner_stride(input, type, strides)
                   : rules::contiguous(input, type, strides);
}

// --- decomposition into simpler ops ------------------------------------------------------------

// Returns a bᵀ, where b has one head for each `group` heads of a.
Val times_transposed(Val a, Val b, std::int64_t group) {
  return rows_separated(matmul(rows_grouped(a, group), b, {.transpose_b = true}), group);
}
// Returns aᵀ b, summed over each `group` heads.
Val transposed_times(Val a, Val b, std::int64_t group) {
  return matmul(rows_grouped(a, group), rows_grouped(b, group), {.transpose_a = true});
}

// The scores scale · q kᵀ in the dtype of statistics, capped.
struct Scores {
  Val value;
  Val slope;  // of the cap: 1 - tanh²; none: there is no cap
};
Scores capped_scores(Val q, Val k, const Attrs& attrs) {
  Val x = times_transposed(q, k, attention_group(q.shape(), k.shape()));
  x = cast(x, rules::accumulation_dtype(x.dtype()));
  const double scale = attrs.real("scale"), cap = attrs.real("cap");
  if (cap == 0.0) return {affine(x, scale), {}};
  const Val t = unary("tanh", affine(x, scale / cap));
  return {affine(t, cap), affine(mul(t, t), -1.0, 1.0)};
}

// Returns the scores `x` with -inf where a query does not see the key. `q`: the index of operand q.
Val visible(Val x, const Attrs& attrs, std::span<const Val> inputs, int q) {
  if (!attrs.flag("causal")) return x;
  if (const std::size_t at = bounds_at(inputs.size(), q); at > 0) x = in_document(x, inputs[at]);
  Builder& b = *x.builder;
  const std::int64_t rows = x.dim(-2), cols = x.dim(-1), window = window_of(attrs);
  const Val hidden = fill(b, -std::numeric_limits<double>::infinity(), {x.dtype(), {}});
  const Val seen = select(causal_mask(b, rows, cols), x, hidden);
  return window == 0 ? seen : select(window_mask(b, rows, cols, window), seen, hidden);
}

}  // namespace

Val in_document(Val scores, Val starts) {
  Builder& b = *scores.builder;
  Shape column = starts.shape();
  if (scores.shape().rank() > 2) {
    column[column.rank() - 1] = 1;
    column.push_back(starts.dim(-1));
  }
  column.push_back(1);
  const Val keys = iota(b, {DType::kI64, {scores.dim(-1)}}, 0);
  const Val hidden = fill(b, -std::numeric_limits<double>::infinity(), {scores.dtype(), {}});
  return select(binary("le", reshape(starts, column), keys), scores, hidden);
}

namespace {

std::vector<Val> forward_decomposed(Expansion e) {
  const Val q = e.inputs[0], k = e.inputs[1], v = e.inputs[2];
  const std::int64_t group = attention_group(q.shape(), k.shape());
  const Val scores = visible(capped_scores(q, k, e.attrs).value, e.attrs, e.inputs, 0);
  const Val weights = rows_grouped(cast(softmax(scores), q.dtype()), group);
  const Val y = rows_separated(matmul(weights, v), group);
  return {is_token_major(e.attrs) ? heads_moved(y) : y, log_sum_exp(scores)};
}

std::vector<Val> gradient_decomposed(Expansion e) {
  const bool moved = is_token_major(e.attrs);
  const Val dy = moved ? heads_moved(e.inputs[0]) : e.inputs[0];
  const Val y = moved ? heads_moved(e.inputs[4]) : e.inputs[4];
  const Val q = e.inputs[1], k = e.inputs[2], v = e.inputs[3], lse = e.inputs[5];
  const std::int64_t group = attention_group(q.shape(), k.shape());
  const DType wide = rules::accumulation_dtype(q.dtype());
  Shape column = lse.shape();
  column.push_back(1);
  const Scores scores = capped_scores(q, k, e.attrs);
  const Val seen = visible(scores.value, e.attrs, e.inputs, 1);
  const Val p = unary("exp", sub(seen, reshape(lse, column)));
  const Val inner = sum(mul(cast(dy, wide), cast(y, wide)), {q.shape().rank() - 1}, true);
  const Val dp = cast(times_transposed(dy, v, group), wide);
  Val slopes = affine(mul(p, sub(dp, inner)), e.attrs.real("scale"));
  if (scores.slope) slopes = mul(slopes, scores.slope);
  const Val ds = cast(slopes, q.dtype());
  std::vector<Val> out{rows_separated(matmul(rows_grouped(ds, group), k), group),
                       transposed_times(ds, q, group),
                       transposed_times(cast(p, q.dtype()), dy, group)};
  if (moved) {
    for (Val& x : out) x = heads_moved(x);
  }
  return out;
}

std::vector<Val> forward_gradient(Expansion e) {
  if (e.output_grads[1]) {
    fail_usage("flash_attention", "no gradient flows through the second result; use log_sum_exp");
  }
  std::vector<Val> operands{e.output_grads[0], e.inputs[0],  e.inputs[1],
                            e.inputs[2],       e.outputs[0], e.outputs[1]};
  operands.insert(operands.end(), e.inputs.begin() + 3, e.inputs.end());  // bounds of documents
  std::vector<Val> out = e.builder.call(find_op("flash_attention_grad"), operands, e.attrs);
  if (is_token_major(e.attrs)) {
    for (Val& x : out) x = heads_moved(x);
  }
  out.resize(e.inputs.size());
  return out;
}

// --- cost --------------------------------------------------------------------------------------

// Returns the FLOPs of `products` products of T_q × T_k × D; a causal mask leaves out half of the
// last square, and a window the keys before it. Rows of documents count as kUsualDocuments each.
std::int64_t flops_of(const OpCall& c, int q, std::int64_t products) {
  const Attrs& attrs = c.attrs;
  const auto at = static_cast<std::size_t>(q);
  const AttentionSizes a = attention_sizes(c.inputs[at], c.inputs[at + 1]);
  if (bounds_at(c.inputs.size(), q) > 0) {
    return products * a.heads * (a.queries * a.queries / kUsualDocuments) * a.width;
  }
  std::int64_t twice_the_pairs = 2 * a.queries * a.keys;
  if (attrs.flag("causal")) twice_the_pairs -= a.queries * a.queries;
  if (const std::int64_t window = window_of(attrs); window > 0 && window < a.keys) {
    // The last query does not see `most` keys, each one before it one less.
    const std::int64_t most = a.keys - window, rows = std::min(a.queries, most);
    twice_the_pairs -= rows * (2 * most - rows);
  }
  return products * a.heads * twice_the_pairs * a.width;
}

std::vector<AttrDef> attributes() {
  return {{"scale", AttrKind::kReal, std::nullopt, "factor on the scores"},
          {"causal", AttrKind::kBool, AttrValue(true), "query i sees keys j <= i + (Tk - Tq)"},
          {"token_major", AttrKind::kBool, AttrValue(false),
           "results as [..., T, H, D] for operands [..., H, T, D]"},
          {"window", AttrKind::kInt, AttrValue(std::int64_t{0}),
           "causal: keys that a query sees, its own the last; 0: all"},
          {"cap", AttrKind::kReal, AttrValue(0.0),
           "scores s become cap · tanh(s / cap); 0: they stay"}};
}

void register_gradient() {
  register_op(
      {.name = "flash_attention_grad",
       .doc = "The gradients of q, k and v, from forward's y and lse, tile by tile; those of k "
              "and v are summed over the heads of q that share them.",
       .source = "Dao 2023, FlashAttention-2, alg. 2",
       .inputs = {"dy", "q", "k", "v", "y", "lse", "starts?", "ends?"},
       .outputs = {"dq", "dk", "dv"},
       .attrs = attributes(),
       .kernel_class = KernelClass::kAttention,
       .precision_class = PrecisionClass::kLow,
       .infer = gradient_type,
       .accepts = rows_and_statistics,
       .writes = rules::unit_inner_stride,
       .decompose = gradient_decomposed,
       .flops = [](const OpCall& c) { return flops_of(c, 1, 5); },
       .stays_whole = true});
}

}  // namespace

void register_flash_attention() {
  register_op({.name = "flash_attention",
               .doc = "softmax(scale · q kᵀ) v over [..., T, D] without the matrix of scores; also "
                      "the log-sum-exp of each row of scores. k and v may have fewer heads, each "
                      "for a group of q's. With starts and ends, rows are documents side by side: "
                      "query i sees keys starts[i] <= j <= i, key j queries j <= i < ends[j].",
               .source = "Dao 2023, FlashAttention-2, alg. 1",
               .inputs = {"q", "k", "v", "starts?", "ends?"},
               .outputs = {"y", "lse"},
               .attrs = attributes(),
               .kernel_class = KernelClass::kAttention,
               .precision_class = PrecisionClass::kLow,
               .infer = forward_type,
               .accepts = rows_and_bounds,
               .gradient = forward_gradient,
               .decompose = forward_decomposed,
               .flops = [](const OpCall& c) { return flops_of(c, 0, 2); },
               .stays_whole = true});
  register_gradient();
}

}  // namespace tracestep::ops

#include "support/random_ops.h"

#include <algorithm>
#include <cmath>

#include "ops/functions.h"

namespace tracestep::testing {
namespace {

Type f32(const Shape& shape) {
  return {DType::kF32, shape};
}

// Elementwise ops without attributes on operands of one floating type.
struct ElementwiseOps {
  std::vector<const OpDef*> arithmetic, comparisons;

  ElementwiseOps() {
    for (const OpDef* op : all_ops()) {
      if (op->fusion != Fusion::kElementwise || !op->attrs.empty() || op->name == "select")
        continue;
      const std::vector<Type> inputs(op->inputs.size(), f32({2}));
      const bool compares = op->infer({*op, {}, inputs, {}})[0].dtype == DType::kBool;
      (compares ? comparisons : arithmetic).push_back(op);
    }
  }
};
const ElementwiseOps& elementwise_ops() {
  static const ElementwiseOps all;
  return all;
}

bool needs_positive(const OpDef& op, std::size_t input) {
  if (op.name == "div") return input == 1;
  return op.name == "reciprocal" || op.name == "log" || op.name == "sqrt" || op.name == "rsqrt";
}

}  // namespace

RandomOps::RandomOps(Builder& builder, Dice& dice, bool differentiable)
    : b_(builder), dice_(dice), differentiable_(differentiable) {
  const DType usual =
      dice_.pick({DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kF16});
  const auto dtype = [&] {
    return dice_.chance(0.8) ? usual : dice_.pick({DType::kF32, DType::kBF16, DType::kF16});
  };
  const auto add = [&](LeafKind kind, std::int64_t least, std::int64_t most) {
    for (std::int64_t n = dice_.between(least, most); n > 0; --n) {
      items_.push_back({new_leaf(kind, {dtype(), new_shape(1)})});
      if (kind == LeafKind::kState) states_.push_back(items_.back().value);
    }
  };
  add(LeafKind::kInput, 1, 3);
  add(LeafKind::kParameter, 1, 3);
  if (!differentiable_) add(LeafKind::kState, 0, 3);
}

const std::vector<RandomOps::Recipe>& RandomOps::recipes() {
  static const std::vector<Recipe> all{&RandomOps::elementwise, &RandomOps::elementwise,
                                       &RandomOps::elementwise, &RandomOps::compare_and_select,
                                       &RandomOps::affine,      &RandomOps::change_dtype,
                                       &RandomOps::count,       &RandomOps::view,
                                       &RandomOps::view,        &RandomOps::copy,
                                       &RandomOps::join_parts,  &RandomOps::pad,
                                       &RandomOps::generate,    &RandomOps::reduce,
                                       &RandomOps::softmax,     &RandomOps::normalize,
                                       &RandomOps::rotate,      &RandomOps::multiply,
                                       &RandomOps::multiply,    &RandomOps::look_up,
                                       &RandomOps::scatter,     &RandomOps::attend,
                                       &RandomOps::entropy,     &RandomOps::global_norm,
                                       &RandomOps::widen};
  return all;
}

void RandomOps::add_calls(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scope = b_.scope(fmt::format("part{}", i / 3));
    (this->*dice_.pick(recipes()))();
  }
}

// --- a call of each family ----------------------------------------------------------------------
void RandomOps::elementwise() {
  const OpDef& op = *dice_.pick(elementwise_ops().arithmetic);
  const Type type = item().value.type();
  std::vector<Val> operands;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    operands.push_back(needs_positive(op, i) ? positive(type) : operand(type));
  }
  // Operands are at most 2, so the largest results are e², 2 · 2 · 2 and the like.
  for (Val v : b_.call(op, operands)) keep(v, 16.0);
}

// Compares leaves alone: computed values might differ by a rounding from pass to pass.
void RandomOps::compare_and_select() {
  const Type type{dice_.pick({DType::kF32, DType::kBF16, DType::kI64, DType::kI32}), new_shape()};
  const LeafRange few = is_floating(type.dtype) ? LeafRange{} : LeafRange{1.0, 4.0};
  const Val a = new_leaf(LeafKind::kInput, type, few), c = new_leaf(LeafKind::kInput, type, few);
  flags_.push_back(b_.call(*dice_.pick(elementwise_ops().comparisons), {a, c}).front());
  const Type values = item().value.type();
  const Val condition = fit(dice_.pick(flags_), values.shape);
  keep(ops::select(condition, operand(values), operand(values)), 2.0);
}

void RandomOps::affine() {
  if (dice_.chance(0.2)) {
    const Item x = item();
    const Val batch = new_leaf(LeafKind::kInput, {DType::kI64, {1}}, {0.0, 9.0});
    const Attrs attrs{{"rate", 0.5}, {"stream", dice_.between(0, 3)}};
    return keep(b_.call1("dropout", {x.value, batch}, attrs), 2.0 * x.reach);
  }
  if (dice_.chance(0.1)) {
    const Type type = item().value.type();
    return keep(b_.call1("pow", {positive(type), operand(type)}), 16.0);
  }
  const Item x = item();
  keep(ops::affine(x.value, dice_.pick({-1.5, -1.0, 0.5, 1.25}), dice_.pick({-1.0, 0.0, 0.5})),
       1.5 * x.reach + 1.0);
}

void RandomOps::change_dtype() {
  const DType to = dice_.pick({DType::kF32, DType::kBF16, DType::kF16});
  if (!flags_.empty() && dice_.chance(0.3)) {
    keep(ops::cast(dice_.pick(flags_), to), 1.0);
  } else if (!numbers_.empty() && dice_.chance(0.4)) {
    keep(ops::cast(dice_.pick(numbers_), to), 121.0);
  } else {
    const Item x = item();
    keep(in_dtype(x.value, to), x.reach);
  }
}

void RandomOps::count() {
  const Type type{dice_.pick({DType::kI64, DType::kI32, DType::kU8}), new_shape()};
  const Val a = new_leaf(LeafKind::kInput, type, {1.0, 11.0});
  const Val c = new_leaf(LeafKind::kInput, type, {1.0, 11.0});
  numbers_.push_back(ops::binary(dice_.pick({"add", "mul", "maximum", "minimum"}), a, c));
  if (type.dtype != DType::kU8) flags_.push_back(ops::cast(ops::sub(a, c), DType::kBool));
}

void RandomOps::view() {
  const Item x = item();
  const Shape shape = x.value.shape();
  const auto axis = static_cast<int>(dice_.between(0, std::max(shape.rank() - 1, 0)));
  switch (dice_.between(0, shape.rank() == 0 ? 2 : 5)) {
    case 0: return keep(fit(x.value, new_shape()), x.reach);
    case 1: return keep(ops::stop_gradient(x.value), x.reach);
    case 2: {
      Shape larger{dice_.between(1, 3)};
      for (std::int64_t d : shape) larger.push_back(d);
      if (larger.rank() > 5 || larger.product() > kMostElements) return;
      return keep(ops::broadcast_to(x.value, larger), x.reach);
    }
    case 3: {
      const std::int64_t start = dice_.between(0, shape[axis] - 1);
      const std::int64_t stop = dice_.between(start + 1, shape[axis]);
      return keep(ops::slice(x.value, axis, start, stop), x.reach);
    }
    default: {
      Dims axes = all_axes(shape);
      for (int i = shape.rank() - 1; i > 0; --i) {
        std::swap(axes[i], axes[static_cast<int>(dice_.between(0, i))]);
      }
      keep(ops::permute(x.value, axes), x.reach);
    }
  }
}

void RandomOps::copy() {
  const Item x = item();
  keep(ops::copy(x.value), x.reach);
}

void RandomOps::join_parts() {
  const Item first = item();
  const Shape shape = first.value.shape();
  if (shape.rank() == 0 || 2 * shape.product() > kMostElements) return;
  const auto axis = static_cast<int>(dice_.between(0, shape.rank() - 1));
  Shape other = shape;
  other[axis] = dice_.between(1, shape[axis]);
  keep(ops::concat({first.value, operand({first.value.dtype(), other})}, axis),
       std::max(first.reach, 2.0));
}

void RandomOps::pad() {
  const Item x = item();
  const Shape shape = x.value.shape();
  if (shape.rank() == 0) return;
  const std::int64_t axis = dice_.between(0, shape.rank() - 1);
  const std::int64_t start = dice_.between(0, 2);
  const std::int64_t size = start + shape[static_cast<int>(axis)] + dice_.between(0, 2);
  keep(b_.call1("pad_slice", {x.value}, {{"axis", axis}, {"start", start}, {"size", size}}),
       x.reach);
}

void RandomOps::generate() {
  const Type type{dice_.pick({DType::kF32, DType::kBF16, DType::kF16}), new_shape(1)};
  switch (dice_.between(0, 2)) {
    case 0: return keep(ops::fill(b_, dice_.pick({-0.5, 0.0, 1.0}), type), 1.0);
    case 1:
      return keep(ops::iota(b_, type, static_cast<int>(dice_.between(0, type.shape.rank() - 1))),
                  kReach);
    default: keep(ops::rope_table(b_, dice_.between(1, 5), 4, {}).sin, 1.0);
  }
}

void RandomOps::reduce() {
  const Item x = item();
  Dims axes;
  for (int i = 0; i < x.value.shape().rank(); ++i) {
    if (dice_.chance(0.5)) axes.push_back(i);
  }
  if (x.value.shape().rank() > 0 && dice_.chance(0.2)) {
    const auto terms = static_cast<double>(x.value.dim(-1));
    return keep(b_.call1("cumsum", {x.value}, {{"reverse", dice_.chance(0.5)}}),
                std::max(x.reach * terms, 1.0));
  }
  const bool keeps = dice_.chance(0.3);
  if (dice_.chance(0.6)) {
    const auto terms = static_cast<double>(x.value.shape().product());
    keep(ops::sum(x.value, axes, keeps), std::max(x.reach * terms, 1.0));
  } else {
    keep(ops::max(x.value, axes, keeps), x.reach);
  }
}

void RandomOps::softmax() {
  const DType dtype = item().value.dtype();
  Shape shape = new_shape(2);
  // No more rows than columns: a causal row that sees nothing has no softmax.
  const int columns = shape.rank() - 1;
  if (shape[columns] < shape[columns - 1]) std::swap(shape[columns], shape[columns - 1]);
  const Type type{dtype, shape};
  const Val x = operand(type, 4.0);
  switch (dice_.between(0, 4)) {
    case 0: return keep(ops::log_sum_exp(x), kReach);
    case 1:
      return keep(b_.call1("softmax_grad", {operand(type), ops::softmax(x)}, {{"scale", 0.7}}),
                  3.0);
    case 2: return keep(ops::softmax(x, {.scale = 0.5}), 1.0);
    case 3: return keep(ops::softmax(x, {.scale = 0.5, .causal = true}), 1.0);
    default: {
      const Val position = new_leaf(LeafKind::kInput, {DType::kI64, {}}, {0.0, 3.0});
      keep(ops::softmax(x, {.scale = 0.5, .causal = true}, position), 1.0);
    }
  }
}

void RandomOps::normalize() {
  const Item x = item();
  const Type type{x.value.dtype(), new_shape(1)};
  const DType weight = dice_.chance(0.5) ? DType::kF32 : type.dtype;
  const auto width = static_cast<double>(type.shape.back());
  const bool is_layer = dice_.chance(0.4);
  std::vector<Val> operands{operand(type), operand({weight, {type.shape.back()}})};
  if (is_layer && dice_.chance(0.7)) operands.push_back(operand({weight, {type.shape.back()}}));
  const std::vector<Val> out =
      b_.call(find_op(is_layer ? "layer_norm" : "rms_norm"), operands, {{"eps", 0.1}});
  keep(out[0], 2.0 * std::sqrt(width) + 2.0);
  // No gradient flows through the statistic.
  if (dice_.chance(0.3)) keep(differentiable_ ? ops::stop_gradient(out[1]) : out[1], 4.0);
}

void RandomOps::rotate() {
  const DType dtype = item().value.dtype();
  const std::int64_t tokens = dice_.between(1, 4), width = 2 * dice_.between(1, 3);
  const Val x = operand({dtype, {dice_.between(1, 3), tokens, width}});
  keep(ops::rope(x, ops::rope_table(b_, tokens, width, {}), dice_.chance(0.3)), 4.0);
}

// Makes codes of a weight that an update wrote, and their scale.
std::vector<Val> RandomOps::refreshed(Attrs attrs, Val last) {
  attrs.set("dtype", DType::kF8E4M3);
  attrs.set("largest", AttrValue(448.0));
  attrs.set("through", DType::kBF16);
  const Type type = f32({16, 16});
  const Val unread = ops::cast(ops::fill(b_, 0.0, type), attrs.dtype("dtype")),
            found = ops::fill(b_, 0.0, f32({1, 2}));
  std::vector<Val> operands{ops::fill(b_, 1e-3, f32({})), ops::fill(b_, 1e-3, f32({})), found};
  for (int i = 0; i < 3; ++i) operands.push_back(operand(type));
  operands.push_back(ops::fill(b_, 1.0, type));
  operands.insert(operands.end(), {unread, ops::copy(unread), last});
  Attrs update = attrs;
  update.set("parts", std::int64_t{1});
  const std::vector<Val> after = b_.call(find_op("adamw_codes"), operands, update);
  return b_.call(find_op("refresh_codes"), {found, after[1], last, after[4], after[5]}, attrs);
}

// Multiplies 8-bit codes, in the only sizes that have such products.
void RandomOps::multiply_quantized() {
  const auto codes = [&](DType dtype, double largest) {
    const Val x = operand({dice_.pick({DType::kF32, DType::kBF16, DType::kF16}), {16, 16}});
    Attrs attrs{{"dtype", dtype}, {"largest", AttrValue(largest)}};
    const std::int64_t source = dice_.between(0, 6);
    if (source == 0) return b_.call(find_op("quantize"), {x}, attrs);
    attrs.set("room", AttrValue(16.0));
    // Magnitudes are none, outgrown, fitting or far too large, so that no rounding changes a code.
    const Val last = ops::fill(b_, dice_.pick({0.0, 1e-3, 2.0, 1e4}), {DType::kF32, {1}});
    if (source == 1 || source == 6) return b_.call(find_op("quantize_delayed"), {x, last}, attrs);
    if (source == 2) {
      return b_.call(find_op("swiglu_quantized"), {x, operand(x.type()), last}, attrs);
    }
    if (source == 4) return refreshed(attrs, last);
    if (source == 5) {
      const Val now = b_.call1("largest_magnitudes", {x});
      const std::vector<Val> made = b_.call(find_op("quantize_parts"), {now, x, last}, attrs);
      return std::vector{made[0], b_.call1("transpose_codes", {made[0]}), made[1]};
    }
    const auto half = [&] { return operand({x.dtype(), {16, 8}}); };
    return b_.call(find_op("swiglu_grad_quantized"), {half(), half(), half(), last}, attrs);
  };
  const std::vector<Val> a = dice_.chance(0.5) ? codes(DType::kF8E5M2, 57344.0)
                                               : codes(DType::kF8E4M3, 448.0),
                         b = codes(DType::kF8E4M3, 448.0);
  const std::vector<Val> operands{a[dice_.chance(0.5) ? 0 : 1], b[dice_.chance(0.5) ? 0 : 1], a[2],
                                  b[2]};
  const DType dtype = dice_.pick({DType::kF32, DType::kBF16});
  const double reach = 16.0 * 4.4 * 4.4 * 1.2;  // of elements of two, and of products in swiglu
  if (dice_.chance(0.7))
    return keep(b_.call1("scaled_matmul", operands, {{"dtype", dtype}}), reach);
  std::vector<Val> added = operands;
  added.push_back(operand({dtype, {16, 16}}));
  keep(b_.call1("scaled_matmul_add", added), reach + 2.0);
}

void RandomOps::multiply() {
  const DType dtype = item().value.dtype();
  const std::int64_t m = dice_.between(1, 6), n = dice_.between(1, 6), k = dice_.between(1, 8);
  const bool ta = dice_.chance(0.3), tb = dice_.chance(0.5);
  Shape a = ta ? Shape{k, m} : Shape{m, k}, c = tb ? Shape{n, k} : Shape{k, n};
  if (dice_.chance(0.3)) {
    const std::int64_t batch = dice_.between(1, 3);
    a = {batch, a[0], a[1]};
    c = {batch, c[0], c[1]};
  }
  if (!differentiable_ && dice_.chance(0.3)) return multiply_quantized();
  const Val y = ops::matmul(operand({dtype, a}), operand({dtype, c}), {ta, tb});
  const double reach = 4.0 * static_cast<double>(k);
  switch (dice_.between(0, 8)) {
    case 8: {
      if (a.rank() != 2) return keep(y, reach);
      return keep(ops::matmul_bias(operand({dtype, a}), operand({dtype, c}), operand({dtype, {n}}),
                                   {ta, tb}),
                  reach + 2.0);
    }
    case 6: {
      const Val g = operand(f32({m, n})), w = operand(f32({n, k})), x = operand(f32({m, k}));
      const std::vector<Val> both = b_.call(find_op("linear_grad"), {g, w, x});
      return keep(both[static_cast<std::size_t>(dice_.between(0, 1))], 4.0 * 6);
    }
    case 0: return keep(ops::add(in_dtype(y, DType::kF32), operand(f32(y.shape()))), reach + 2.0);
    case 1: {
      const std::vector<Val> factors{operand({dtype, a}), operand({dtype, c})};
      const Attrs attrs{{"transpose_a", ta}, {"transpose_b", tb}};
      if (a.rank() == 2 && m > 1 && dice_.chance(0.5)) return multiply_rows(factors, attrs, {m, n});
      return keep(b_.call1("matmul_add", {factors[0], factors[1], operand(y.type())}, attrs),
                  reach + 2.0);
    }
    case 2: return differentiable_ ? keep(y, reach) : multiply_row();
    case 7: return differentiable_ ? keep(y, reach) : multiply_gated();
    default: keep(y, reach);
  }
}

// Calls a product whose first row is added to one tensor, and the others to another.
void RandomOps::multiply_rows(std::vector<Val> operands, const Attrs& attrs, const Shape& shape) {
  const DType dtype = operands[0].dtype();
  const auto k = static_cast<double>(operands[0].type().count() / shape[0]);
  operands.push_back(operand({dtype, {1, shape[1]}}));
  operands.push_back(operand({dtype, {shape[0] - 1, shape[1]}}));
  const std::vector<Val> sums = b_.call(find_op("matmul_add_rows"), operands, attrs);
  for (const Val& sum : sums) keep(sum, 4.0 * k + 2.0);
}

// Calls a product that ends with SwiGLU, or with its gradients; not where gradients must flow.
void RandomOps::multiply_gated() {
  const DType dtype = item().value.dtype();
  const std::int64_t rows = dice_.between(1, 6), width = dice_.between(1, 6),
                     columns = dice_.between(1, 5);
  const double reach = 0.5 * static_cast<double>(width);
  const Val x = operand({dtype, {rows, width}});
  if (dice_.chance(0.5)) {
    const bool is_read = dice_.chance(0.7);
    const std::vector<Val> both =
        b_.call(find_op("matmul_swiglu"), {x, operand({dtype, {2 * columns, width}}, 0.25)},
                {{"unread", !is_read}});
    if (is_read) keep(both[0], reach);
    return keep(both[1], reach * reach);
  }
  const Val w = operand({dtype, {width, columns}}, 0.25),
            gate_up = operand({dtype, {rows, 2 * columns}});
  keep(b_.call1("matmul_swiglu_grad", {x, w, gate_up}), 2.5 * reach);
}

// Calls a product of one row, with some of what may be around it; not where gradients must flow.
void RandomOps::multiply_row() {
  const DType dtype = item().value.dtype();
  const std::int64_t k = 8 * dice_.between(1, 3), units = dice_.between(1, 5);
  const bool is_gated = dice_.chance(0.3), is_normed = dice_.chance(0.5);
  const std::int64_t rows = is_gated ? 2 * units : units;
  std::vector<Val> operands{operand({dtype, {1, k}}), operand({dtype, {rows, k}}, 0.25)};
  Attrs attrs{{"gated", is_gated},
              {"activation", dice_.pick({std::string("none"), std::string("silu")})}};
  if (is_normed) {
    attrs.set("norm", dice_.pick({std::string("rms"), std::string("layer")}));
    attrs.set("eps", 0.25);
    operands.push_back(operand({dtype, {k}}));
  }
  if (dice_.chance(0.5)) {
    attrs.set("biased", true);
    operands.push_back(operand({dtype, {rows}}));
  }
  if (dice_.chance(0.5)) {
    attrs.set("added", true);
    operands.push_back(operand({dtype, {1, units}}));
  }
  // A normed row is at most 2 · √k · 2 long in each element.
  const double one = 0.25 * static_cast<double>(k) * (is_normed ? 20.0 : 2.0) + 2.0;
  keep(b_.call(find_op("gemv"), operands, attrs).front(), is_gated ? one * one + 2.0 : one + 2.0);
}

void RandomOps::look_up() {
  const DType dtype = item().value.dtype();
  const std::int64_t rows = dice_.between(1, 6), width = dice_.between(1, 5);
  const Val table = operand({dtype, {rows, width}});
  if (dice_.chance(0.5)) {
    keep(ops::gather(table, indices(new_shape(), rows)), 2.0);
  } else {
    keep(ops::take_along(table, indices({rows}, width)), 2.0);
  }
  // Reads leaves alone: among computed values a rounding might make another one the largest.
  if (!dice_.chance(0.3)) return;
  const Val logits = new_leaf(LeafKind::kInput, {dtype, {rows, width}});
  numbers_.push_back(b_.call(find_op("greedy_token"), {logits}).front());
}

void RandomOps::scatter() {
  const DType dtype = item().value.dtype();
  const std::int64_t rows = dice_.between(1, 5), width = dice_.between(1, 5),
                     size = dice_.between(1, 6);
  if (dice_.chance(0.3)) {
    keep(b_.call1("scatter_add_to", {operand({dtype, {rows, width}}), indices({rows}, size),
                                     operand({dtype, {size, width}})}),
         2.0 * static_cast<double>(rows) + 1.0);
  } else if (dice_.chance(0.5)) {
    keep(b_.call1("scatter_add", {operand({dtype, {rows, width}}), indices({rows}, size)},
                  {{"rows", size}}),
         2.0 * static_cast<double>(rows));
  } else {
    keep(b_.call1("put_along", {operand({dtype, {rows}}), indices({rows}, size)}, {{"size", size}}),
         2.0);
  }
}

void RandomOps::attend() {
  const DType dtype = item().value.dtype();
  const std::int64_t batch = dice_.between(1, 2), key_heads = dice_.between(1, 2),
                     tokens = dice_.between(1, 6), width = dice_.between(1, 4);
  const std::int64_t group = dice_.chance(0.4) ? 2 : 1;
  // Heads as a model has them: a permuted view.
  const auto head = [&](std::int64_t heads) {
    return ops::permute(operand({dtype, {batch, tokens, heads, width}}), {0, 2, 1, 3});
  };
  const Val q = head(group * key_heads), k = head(key_heads), v = head(key_heads);
  if (!differentiable_ && dice_.chance(0.4)) return keep_with_cache(q, k, v);
  ops::AttentionOptions options{.causal = true,
                                .cap = dice_.chance(0.2) ? 1.5 : 0.0,
                                .window = dice_.chance(0.3) ? dice_.between(1, 4) : 0};
  if (dice_.chance(0.25)) {  // rows of one document each
    const double end = static_cast<double>(tokens);
    const Val ends = new_leaf(LeafKind::kInput, {DType::kI64, {batch, tokens}}, {end, end});
    const ops::DocumentBounds bounds{indices({batch, tokens}, 1), ends};
    return keep(ops::attention_of_documents(q, k, v, bounds, options), 2.0);
  }
  options.causal = dice_.chance(0.6);
  keep(ops::attention(q, k, v, options), 2.0);
}

// Widens a block of 4-bit weights, whose largest is at most |scale| + |offset|.
void RandomOps::widen() {
  const Shape shape = dice_.pick<Shape>({{64}, {2, 32}, {16, 4}});
  Shape pairs = shape;
  pairs[pairs.rank() - 1] /= 2;
  const auto codes = [&](const Shape& of) {
    return new_leaf(LeafKind::kInput, {DType::kU8, of}, {0.0, 255.0});
  };
  const auto number = [&] { return new_leaf(LeafKind::kInput, f32({1})); };
  keep(b_.call1("widen_nf4", {codes(pairs), codes({1}), number(), number()},
                {{"dtype", item().value.dtype()}, {"shape", shape}}),
       4.0);
}

// Calls attention of new tokens over caches that have room for them and some more.
void RandomOps::keep_with_cache(Val q, Val k, Val v) {
  const std::int64_t tokens = q.dim(2), keys = tokens + dice_.between(0, 4);
  Shape cache = k.shape();
  cache[2] = keys;
  std::vector<Val> operands{q,
                            k,
                            v,
                            operand({q.dtype(), cache}),
                            operand({q.dtype(), cache}),
                            indices({}, keys - tokens + 1)};
  const std::int64_t pairs = q.dim(3) / 2;
  for (int table = 0; pairs > 0 && table < 2; ++table) {
    operands.push_back(operand(f32({tokens, pairs}), 1.0));
  }
  const Attrs attrs{{"scale", 0.4},
                    {"cap", dice_.chance(0.2) ? 1.5 : 0.0},
                    {"window", dice_.chance(0.3) ? dice_.between(1, 4) : 0}};
  const std::vector<Val> out =
      b_.call(find_op(dice_.pick({"attention_with_cache", "cached_attention"})), operands, attrs);
  for (const Val& x : out) keep(x, 2.0);
}

void RandomOps::entropy() {
  const DType dtype = item().value.dtype();
  const std::int64_t rows = dice_.between(1, 6), words = dice_.between(2, 7);
  // The logits may be a product, as a model's are: then the loss may be computed in chunks.
  const Val x = dice_.chance(0.5) ? ops::matmul(operand({dtype, {rows, 2}}, 1.0),
                                                operand({dtype, {words, 2}}, 1.0), {false, true})
                                  : operand({dtype, {rows, words}});
  const std::int64_t columns = dice_.chance(0.7) ? words : dice_.between(1, words);
  const Val targets = indices({rows}, columns);
  Attrs attrs{{"columns", columns == words ? 0 : columns}};
  // With `count`, rows of one target are left out; it is no 0.
  std::vector<Val> operands{x, targets};
  if (dice_.chance(0.3)) {
    attrs.set("ignore_index", dice_.between(0, columns - 1));
    operands.push_back(ops::fill(b_, 2.5, f32({})));
  }
  if (dice_.chance(0.5)) {
    return keep(b_.call(find_op("cross_entropy"), operands, attrs)[0], kReach);
  }
  operands.insert(operands.begin(), operand(f32({})));
  const std::vector<Val> both = b_.call(find_op("cross_entropy_with_grad"), operands, attrs);
  keep(both[0], kReach);
  // No gradient flows through the statistic that the second is made of.
  keep(differentiable_ ? ops::stop_gradient(both[1]) : both[1], 2.0);
}

void RandomOps::global_norm() {
  const Item x = item(), y = item();
  keep(ops::global_norm({x.value, operand({x.value.dtype(), y.value.shape()})}), 100.0);
}

// --- updates ------------------------------------------------------------------------------------
void RandomOps::add_updates() {
  const auto phase = b_.phase(Phase::kOptimizer);
  for (Val state : states_) {
    if (dice_.chance(0.2)) continue;
    using Update = void (RandomOps::*)(Val);
    (this->*dice_.pick<Update>({&RandomOps::update_in_place, &RandomOps::update_by_assignment,
                                &RandomOps::update_by_writing, &RandomOps::update_by_moving}))(
        state);
  }
  if (dice_.chance(0.2)) update_by_adamw();
  if (dice_.chance(0.1)) update_by_coded_adamw();
}

// Updates a state in place. The new value must not be made of another state, which may have been
// updated before.
void RandomOps::update_in_place(Val state) {
  const Val x = ops::copy(new_leaf(LeafKind::kInput, state.type()));
  b_.update(state, ops::add(ops::affine(state, 0.5), x));
}

void RandomOps::update_by_assignment(Val state) {
  std::vector<Val> others;
  for (const Item& i : items_) {
    if (!is_of_leaf(i.value)) others.push_back(i.value);
  }
  // The update is a node of its own, after all that read the state.
  b_.update(state, ops::copy(fit(in_dtype(dice_.pick(others), state.dtype()), state.shape())));
}

void RandomOps::update_by_writing(Val state) {
  const int axis = static_cast<int>(dice_.between(0, state.shape().rank() - 1));
  Shape piece = state.shape();
  piece[axis] = dice_.between(1, piece[axis]);
  const double room = static_cast<double>(state.shape()[axis] - piece[axis]);
  const Val position = new_leaf(LeafKind::kInput, {DType::kI64, {}}, {0.0, room});
  b_.update(state, ops::write_slice(state, new_leaf(LeafKind::kInput, {state.dtype(), piece}),
                                    position, axis));
}

void RandomOps::update_by_moving(Val state) {
  const Val there = b_.call1("offload", {state, new_leaf(LeafKind::kInput, state.type())});
  keep(b_.call1("reload", {there}), kReach);
  b_.update(state, there);
}

// Updates by moments that codes hold as they are, so that the weight does not depend on how others
// are rounded.
void RandomOps::update_by_coded_adamw() {
  const Type type = f32(new_shape());
  const Val p = new_leaf(LeafKind::kParameter, type), g = new_leaf(LeafKind::kInput, type);
  const Val rate = new_leaf(LeafKind::kInput, f32({}), {1e-3, 1e-2});
  const auto codes = [&](double value, bool first) {
    return b_.call(find_op("moment_codes"), {ops::fill(b_, value, type), p, g, rate},
                   {{"first", first}});
  };
  const std::vector<Val> m = codes(-0.375, true), v = codes(0.25, false);
  const std::vector<Val> out =
      b_.call(find_op("adamw_8bit"), {rate, rate, rate, p, g, m[0], v[0], m[1], v[1]});
  keep(b_.call1("from_moment_codes", {v[0], v[1]}, {{"first", false}}), 0.25);
  b_.update(p, out[0]);
}

void RandomOps::update_by_adamw() {
  const Type type = f32(new_shape());
  const Val p = new_leaf(LeafKind::kParameter, type);
  const Val m = new_leaf(LeafKind::kState, type), v = new_leaf(LeafKind::kState, type, {0.01, 1.0});
  const Val rate = new_leaf(LeafKind::kInput, f32({}), {1e-3, 1e-2});
  const std::vector<Val> out =
      b_.call(find_op("adamw"), {p, new_leaf(LeafKind::kInput, type), m, v, rate, rate});
  b_.update(p, out[0]);
  b_.update(m, out[1]);
  b_.update(v, out[2]);
}

}  // namespace tracestep::testing

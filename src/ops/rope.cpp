// Rotary position embedding on interleaved pairs (2j, 2j+1), or on pairs (j, j + D/2).
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> rope_type(const OpCall& c) {
  rules::require_floating(c, 0);
  rules::require_min_rank(c, 0, 2);
  const Shape& x = c.inputs[0].shape;
  if (x.back() % 2 != 0) fail_usage(c.op, "width {} is odd; pairs are rotated", x.back());
  rules::require_shape(c, 1, {x.back(1), x.back() / 2});
  rules::require_shape(c, 2, {x.back(1), x.back() / 2});
  return {c.inputs[0]};
}

// Rotates pairs: (a, b) → (a cos - b sin, a sin + b cos), with sin negated for the inverse.
std::vector<Val> rope_decomposed(Expansion e) {
  const Val x = e.inputs[0];
  Shape pairs = x.shape();
  const std::int64_t half = pairs[pairs.rank() - 1] /= 2;
  const Val cos = cast(e.inputs[1], x.dtype());
  Val sin = cast(e.inputs[2], x.dtype());
  if (e.attrs.flag("inverse")) sin = unary("neg", sin);
  if (e.attrs.flag("halves")) {
    const int axis = pairs.rank() - 1;
    const Val a = slice(x, axis, 0, half), b = slice(x, axis, half, 2 * half);
    return {concat({sub(mul(a, cos), mul(b, sin)), add(mul(a, sin), mul(b, cos))}, axis)};
  }
  Shape split = pairs;
  split.push_back(2);
  const int last = pairs.rank();
  const Val xs = reshape(x, split);
  const Val a = reshape(slice(xs, last, 0, 1), pairs), b = reshape(slice(xs, last, 1, 2), pairs);
  Shape single = pairs;
  single.push_back(1);
  const Val first = reshape(sub(mul(a, cos), mul(b, sin)), single);
  const Val second = reshape(add(mul(a, sin), mul(b, cos)), single);
  return {reshape(concat({first, second}, last), x.shape())};
}

}  // namespace

void register_rope() {
  register_op(
      {.name = "rope",
       .doc = "Rotates each pair (2j, 2j+1) of x[..., t, :] by the angle t·theta_j; with "
              "halves, each pair (j, j + D/2).",
       .source = "Su et al. 2021, RoFormer, eq. 34",
       .inputs = {"x", "cos", "sin"},
       .outputs = {"y"},
       .attrs = {{"inverse", AttrKind::kBool, AttrValue(false), "rotate back (gradient)"},
                 {"halves", AttrKind::kBool, AttrValue(false), "pairs are D/2 apart"}},
       .fusion = Fusion::kPairs,
       .composite = Composite::kRope,
       .infer = rope_type,
       .accepts =
           [](int i, const Type& t, const Strides& s) {
             return i == 0 ? rules::unit_inner_stride(i, t, s) : rules::contiguous(i, t, s);
           },
       .gradient =
           [](Expansion e) {
             Attrs attrs = e.attrs;
             attrs.set("inverse", !e.attrs.flag("inverse"));
             return std::vector{
                 e.builder.call1("rope", {e.output_grads[0], e.inputs[1], e.inputs[2]}, attrs),
                 Val{}, Val{}};
           },
       .decompose = rope_decomposed,
       .flops = rules::per_result(3),
       .cheap_to_recompute = true});
}

}  // namespace tracestep::ops

// A general power, by exponentials and logarithms; whole and half powers have ops of their own.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

Val constant(Expansion e, double value, const Val& like) {
  return broadcast_to(fill(e.builder, value, {like.dtype(), {}}), like.shape());
}

// True where x is an integer: a cast to i64 and back keeps it, or it is so large that it can be
// nothing else, as infinity is. NaN counts as one.
Val is_whole(Expansion e, const Val& x) {
  const Val is_small = binary("lt", unary("abs", x), constant(e, 0x1p53, x));
  const Val small = select(is_small, x, constant(e, 0.0, x));
  return binary("eq", cast(cast(small, DType::kI64), x.dtype()), small);
}

// Computes a^b as e^(b log|a|): 1 for b = 0; for negative a negated if b is an odd integer, and NaN
// (0/0) if b is no integer.
std::vector<Val> decomposed(Expansion e) {
  const DType narrow = e.inputs[0].dtype(), wide = rules::accumulation_dtype(narrow);
  const Val a = cast(e.inputs[0], wide), b = cast(e.inputs[1], wide);
  const Val zero = constant(e, 0.0, a), one = constant(e, 1.0, a);
  const Val size = unary("exp", mul(b, unary("log", unary("abs", a))));
  const Val odd = select(is_whole(e, affine(b, 0.5)), size, unary("neg", size));
  const Val below = select(is_whole(e, b), odd, div(zero, zero));
  const Val y = select(binary("lt", a, zero), below, size);
  return {cast(select(binary("eq", b, zero), one, y), narrow)};
}

// Returns g times the slopes b · a^(b-1), 0 for b = 0, and y · log a, 0 for a = 0 and b >= 0.
std::vector<Val> gradient(Expansion e) {
  const Val a = e.inputs[0], b = e.inputs[1], g = e.output_grads[0], zero = constant(e, 0.0, a);
  std::vector<Val> out(2);
  if (e.wanted[0]) {
    const Val lower = e.builder.call1("pow", {a, affine(b, 1.0, -1.0)});
    out[0] = select(binary("eq", b, zero), zero, mul(g, mul(b, lower)));
  }
  if (e.wanted[1]) {
    const Val slope = mul(g, mul(e.outputs[0], unary("log", a)));
    const Val is_flat = binary("le", zero, b);
    out[1] = select(binary("eq", a, zero), select(is_flat, zero, slope), slope);
  }
  return out;
}

}  // namespace

void register_pow() {
  register_op({.name = "pow",
               .doc = "a to the power b; NaN for negative a unless b is whole",
               .inputs = {"a", "b"},
               .outputs = {"y"},
               .precision_class = PrecisionClass::kFull,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .gradient = gradient,
               .decompose = decomposed,
               .flops = rules::per_result(12),
               .cheap_to_recompute = true,
               .always_decompose = true});
}

}  // namespace tracestep::ops

// Products of 8-bit operands: an operand and its transpose in 8 bits with one scale, and the
// product of two such operands. Both are read along K, since tensor cores multiply 8-bit numbers
// of no other order; so whoever quantizes writes both orders while it has the elements.
#include <cmath>

#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// An operand of nothing but zeros has this as its largest magnitude, so that no scale is 0 or
// infinite.
constexpr double kLeastMagnitude = 0x1p-100;
// Rows of operands and results begin at multiples of 16 bytes.
constexpr std::int64_t kWhole = 16;

// The dtypes of codes; those of programs in float64 are not rounded.
void require_codes(const OpCall& c, DType dtype) {
  if (is_float8(dtype) || dtype == DType::kF64) return;
  fail_usage(c.op.name, "codes of {}; f8e4m3 or f8e5m2 is expected", name_of(dtype));
}

std::vector<Type> quantized_types(const OpCall& c) {
  rules::require_floating(c, 0);
  const Type& x = c.inputs[0];
  if (x.shape.rank() != 2) {
    fail_usage(c.op.name, "x is {}; two dimensions are expected", x.shape.str());
  }
  const DType codes = c.attrs.dtype("dtype");
  require_codes(c, codes);
  return {{codes, x.shape},
          {codes, {x.shape[1], x.shape[0]}},
          {rules::accumulation_dtype(x.dtype), {}}};
}

std::vector<Val> quantize_decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const DType wide = rules::accumulation_dtype(x.dtype());
  const auto constant = [&](double value) { return fill(e.builder, value, {wide, {}}); };
  const Val found = cast(max(unary("abs", x), {0, 1}), wide);
  const Val largest = binary("maximum", found, constant(kLeastMagnitude));
  const Val limit = constant(e.attrs.real("largest"));
  const Val codes = cast(mul(cast(x, wide), div(limit, largest)), e.attrs.dtype("dtype"));
  return {codes, copy(permute(codes, {1, 0})), div(largest, limit)};
}

std::vector<Type> scaled_product_type(const OpCall& c) {
  const Type &a = c.inputs[0], &b = c.inputs[1];
  for (int i : {0, 1}) {
    require_codes(c, c.inputs[static_cast<std::size_t>(i)].dtype);
    rules::require_shape(c, 2 + i, {});
    rules::require_floating(c, 2 + i);
  }
  if (a.dtype == DType::kF8E5M2 && b.dtype == DType::kF8E5M2) {
    fail_usage(c.op.name, "both operands are f8e5m2; one f8e4m3 is expected");
  }
  if (a.shape.rank() != 2 || b.shape.rank() != 2 || a.shape[1] != b.shape[1]) {
    fail_usage(c.op.name, "operands {} and {}; [M,K] and [N,K] are expected", a.shape.str(),
               b.shape.str());
  }
  for (std::int64_t size : {a.shape[0], a.shape[1], b.shape[0]}) {
    if (size % kWhole != 0) {
      fail_usage(c.op.name, "operands {} and {}; multiples of {} are expected", a.shape.str(),
                 b.shape.str(), kWhole);
    }
  }
  return {{c.attrs.dtype("dtype"), {a.shape[0], b.shape[0]}}};
}

// Scaled before they are multiplied: codes have magnitudes whose products float16 does not hold.
std::vector<Val> scaled_product_decomposed(Expansion e) {
  const auto scaled = [&](std::size_t i) {
    const Val scale = e.inputs[2 + i];
    return mul(cast(e.inputs[i], scale.dtype()), scale);
  };
  return {cast(matmul(scaled(0), scaled(1), {.transpose_b = true}), e.attrs.dtype("dtype"))};
}

}  // namespace

void register_float8() {
  register_op({.name = "quantize",
               .doc =
                   "x / scale in 8 bits, rounded to nearest even and saturated, and its transpose; "
                   "scale = max|x| / largest.",
               .source = "Micikevicius et al. 2022, section 3",
               .inputs = {"x"},
               .outputs = {"codes", "transposed", "scale"},
               .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "of the codes"},
                         {"largest", AttrKind::kReal, std::nullopt, "magnitude among the codes"}},
               .kernel_class = KernelClass::kElementwise,
               .precision_class = PrecisionClass::kKeep,
               .infer = quantized_types,
               .accepts = rules::unit_inner_stride,
               .decompose = quantize_decomposed,
               .flops = rules::per_operand(0, 3),
               .only_on_gpus = true});

  register_op(
      {.name = "scaled_matmul",
       .doc = "a_scale · b_scale · A·Bᵀ of 8-bit codes a [M,K] and b [N,K], all three "
              "multiples of 16.",
       .source = "Micikevicius et al. 2022, section 3",
       .inputs = {"a", "b", "a_scale", "b_scale"},
       .outputs = {"y"},
       .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "of the result"}},
       .kernel_class = KernelClass::kGemm,
       .precision_class = PrecisionClass::kKeep,
       .infer = scaled_product_type,
       .accepts = rules::contiguous,
       .decompose = scaled_product_decomposed,
       .flops = [](const OpCall& c) { return 2 * c.outputs[0].count() * c.inputs[0].shape[1]; },
       .only_on_gpus = true});
}

}  // namespace tracestep::ops

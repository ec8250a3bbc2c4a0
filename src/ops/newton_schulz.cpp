// The polar factor of a matrix, nearly: what Muon makes of a mean of gradients. Five steps of an
// odd polynomial of degree 5 pull all singular values towards 1, of which some stay between 0.7
// and 1.2.
#include <cmath>

#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

constexpr std::int64_t kSteps = 5;
// The coefficients of a step, x ← a·x + b·x³ + c·x⁵ of every singular value; the least norm.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kLeastNorm = 1e-7;

std::vector<Type> polar_type(const OpCall& c) {
  rules::require_floating(c, 0);
  const int rank = c.inputs[0].shape.rank();
  if (rank != 2 && rank != 3) {
    fail_usage(c.op, "x is {}; a matrix, or several, are expected", c.inputs[0].str());
  }
  return {c.inputs[0]};
}

// Returns the Frobenius norm of each matrix; rows are summed first, which many threads can do.
Val norm_of_each(Val x) {
  const int rank = x.shape().rank();
  const Val wide = cast(x, rules::accumulation_dtype(x.dtype()));
  const Val rows = sum(mul(wide, wide), {rank - 1}, true);
  return unary("sqrt", sum(rows, {rank - 2}, true));
}

// Computes beta·C + A·B. In float32, where tensor cores multiply by parts and add to C as it is, C
// is scaled before the product.
Val multiply_add(Expansion e, Val a, Val b, double beta, Val c) {
  if (is_low_precision(c.dtype()))
    return e.builder.call1("matmul_add", {a, b, c}, {{"beta", beta}});
  return e.builder.call1("matmul_add", {a, b, affine(c, beta)});
}

// Iterates on Z = c^¼·X, for which a step is aZ + (b/√c·G + G²)·Z with G = Z·Zᵀ: both products
// after that of G are added to a scaled operand. Where there are more rows than columns, G = Zᵀ·Z
// stands on the other side: the products are as small, and nothing is transposed.
std::vector<Val> decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const bool is_tall = x.shape().back(1) > x.shape().back(0);
  const double root = std::sqrt(kQuintic), scale = std::sqrt(root);
  const Val norm = norm_of_each(x);
  const Val least = fill(e.builder, kLeastNorm, norm.type());
  const Val inverse = unary("reciprocal", binary("maximum", norm, least));
  Val z = mul(x, broadcast_to(cast(affine(inverse, scale), x.dtype()), x.shape()));
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const Val gram = matmul(z, z, {.transpose_a = is_tall, .transpose_b = !is_tall});
    const Val terms = multiply_add(e, gram, gram, kCubic / root, gram);
    z = is_tall ? multiply_add(e, z, terms, kLinear, z) : multiply_add(e, terms, z, kLinear, z);
  }
  return {affine(z, 1.0 / scale)};
}

std::int64_t polar_flops(const OpCall& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t least = std::min(shape.back(0), shape.back(1));
  const std::int64_t matrices = shape.rank() == 2 ? 1 : shape[0];
  return kSteps * 2 * least * (2 * shape.product() + matrices * least * least);
}

}  // namespace

void register_newton_schulz() {
  register_op({.name = "newton_schulz",
               .doc = "Nearly U·Vᵀ of each matrix x = U·S·Vᵀ, by five steps X ← a·X + b·(X·Xᵀ)·X + "
                      "c·(X·Xᵀ)²·X from x over its norm, with a, b, c = 3.4445, -4.7750, 2.0315; "
                      "products are of the dtype of x.",
               .source = "Jordan et al. 2024, Muon; Björck and Bowie 1971",
               .inputs = {"x"},
               .outputs = {"y"},
               .kernel_class = KernelClass::kOptimizer,
               .precision_class = PrecisionClass::kKeep,
               .composite = Composite::kOptimizer,
               .infer = polar_type,
               .accepts = rules::contiguous,
               .decompose = decomposed,
               .flops = polar_flops,
               .always_decompose = true});
}

}  // namespace tracestep::ops

// Running sums along the last axis.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

std::vector<Type> cumsum_type(const OpCall& c) {
  rules::require_min_rank(c, 0, 1);
  const DType dtype = c.inputs[0].dtype;
  if (!is_floating(dtype) && dtype != DType::kI64 && dtype != DType::kI32) {
    fail_usage(c.op, "x is {}; floating numbers, i64 or i32 are expected", c.inputs[0].str());
  }
  return {c.inputs[0]};
}

// Computes running sums as a product with a triangular matrix of ones, which takes n²
// multiplications for a row of n elements. Sums of integers are exact up to 2^24.
std::vector<Val> decomposed(Expansion e) {
  const Val x = e.inputs[0];
  const DType wide = is_floating(x.dtype()) ? rules::accumulation_dtype(x.dtype()) : DType::kF32;
  const std::int64_t n = x.dim(-1);
  const bool from_end = e.attrs.flag("reverse");
  const Type square{DType::kI64, {n, n}};
  const Val row = iota(e.builder, square, 0), column = iota(e.builder, square, 1);
  const Val ones = cast(from_end ? binary("le", column, row) : binary("le", row, column), wide);
  const Val rows = reshape(cast(x, wide), {n == 0 ? 0 : x.type().count() / n, n});
  return {cast(reshape(matmul(rows, ones), x.shape()), x.dtype())};
}

}  // namespace

void register_cumsum() {
  register_op({.name = "cumsum",
               .doc = "Sums of the elements of a row up to each of them; reverse: from each on.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {{"reverse", AttrKind::kBool, AttrValue(false), "from the end"}},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kFull,
               .infer = cumsum_type,
               .accepts = rules::contiguous,
               .gradient =
                   [](Expansion e) {
                     if (!is_floating(e.inputs[0].dtype())) return std::vector{Val{}};
                     return std::vector{e.builder.call1("cumsum", {e.output_grads[0]},
                                                        {{"reverse", !e.attrs.flag("reverse")}})};
                   },
               .decompose = decomposed,
               .flops = rules::per_result(1),
               .donates = {{0, 0}}});
}

}  // namespace tracestep::ops

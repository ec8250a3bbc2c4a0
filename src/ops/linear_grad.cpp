// Both gradients of a linear layer, for devices that gain by reading its operands once.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

std::vector<Type> both_types(const OpCall& c) {
  rules::require_floating(c, 0);
  for (int i = 0; i < 3; ++i) {
    rules::require_same_dtype(c, 0, i);
    if (c.inputs[static_cast<std::size_t>(i)].shape.rank() != 2)
      fail_usage(c.op, "{} has shape {}; a matrix is expected",
                 c.op.inputs[static_cast<std::size_t>(i)],
                 c.inputs[static_cast<std::size_t>(i)].shape.str());
  }
  const Shape& g = c.inputs[0].shape;
  const std::int64_t k = c.inputs[1].shape[1];
  rules::require_shape(c, 1, {g[1], k});
  rules::require_shape(c, 2, {g[0], k});
  return {{c.inputs[0].dtype, {g[0], k}}, {c.inputs[0].dtype, {g[1], k}}};
}

bool whole_rows(int, const Type& type, const Strides& strides) {
  const std::int64_t rows = type.shape[0], columns = type.shape[1];
  return type.count() == 0 ||
         ((columns == 1 || strides[1] == 1) && (rows == 1 || strides[0] >= columns));
}

std::vector<Val> two_products(const OpExpansion& e) {
  return {matmul(e.inputs[0], e.inputs[1]),
          matmul(e.inputs[0], e.inputs[2], {.transpose_a = true})};
}

std::int64_t both_flops(const OpCall& c) {
  return 4 * c.inputs[0].count() * c.inputs[1].shape[1];
}

}  // namespace

void register_linear_grad() {
  register_op({.name = "linear_grad",
               .doc = "The gradients of y = X·Wᵀ: dX = G·W and dW = Gᵀ·X.",
               .inputs = {"g", "w", "x"},
               .outputs = {"dx", "dw"},
               .attrs = {{"by_parts", AttrKind::kBool, AttrValue(true),
                          "f32 as products of f16 parts (docs/precision.md); a GPU has no other "
                          "kernel"}},
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = both_types,
               .accepts = whole_rows,
               .writes = rules::contiguous,
               .decompose = two_products,
               .flops = both_flops,
               .only_on_gpus = true});
}

}  // namespace tracestep::ops

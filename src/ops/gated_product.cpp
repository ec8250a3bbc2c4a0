// Products that end with SwiGLU, or with its gradients, for devices that have both in one kernel.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

void require_matrices(const OpCall& c) {
  rules::require_floating(c, 0);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    rules::require_same_dtype(c, 0, static_cast<int>(i));
    const Shape& shape = c.inputs[i].shape;
    if (shape.rank() != 2 || c.inputs[i].count() == 0)
      fail_usage(c.op, "{} has shape {}; a matrix is expected, not an empty one", c.op.inputs[i],
                 shape.str());
  }
}

std::vector<Type> gated_types(const OpCall& c) {
  require_matrices(c);
  const Shape &x = c.inputs[0].shape, &w = c.inputs[1].shape;
  rules::require_shape(c, 1, {w[0], x[1]});
  if (w[0] % 2 != 0) {
    fail_usage(c.op, "{} rows of weights, of which half are gates; an even number", w[0]);
  }
  return {{c.inputs[0].dtype, {x[0], w[0]}}, {c.inputs[0].dtype, {x[0], w[0] / 2}}};
}

std::vector<Type> gradient_type(const OpCall& c) {
  require_matrices(c);
  const Shape &dy = c.inputs[0].shape, &w = c.inputs[1].shape;
  rules::require_shape(c, 1, {dy[1], w[1]});
  rules::require_shape(c, 2, {dy[0], 2 * w[1]});
  return {c.inputs[2]};
}

struct Halves {
  Val gate, up;
};
Halves halves_of(Val gate_up) {
  const std::int64_t columns = gate_up.dim(1) / 2;
  return {slice(gate_up, 1, 0, columns), slice(gate_up, 1, columns, 2 * columns)};
}

std::vector<Val> gated_parts(const OpExpansion& e) {
  const Val gate_up = matmul(e.inputs[0], e.inputs[1], {.transpose_b = true});
  const auto [gate, up] = halves_of(gate_up);
  return {gate_up, swiglu(gate, up)};
}

std::vector<Val> gradient_parts(const OpExpansion& e) {
  const auto [gate, up] = halves_of(e.inputs[2]);
  const Val dh = matmul(e.inputs[0], e.inputs[1]);
  const std::vector<Val> both = e.builder.call(find_op("swiglu_grad"), {dh, gate, up});
  return {e.builder.call1("assemble", both, {{"axis", std::int64_t{1}}})};
}

// Returns the FLOPs of the product alone, as a model's formula counts them.
std::int64_t gated_flops(const OpCall& c) {
  return 2 * c.inputs[0].shape[0] * c.inputs[1].count();
}

}  // namespace

void register_gated_product() {
  register_op({.name = "matmul_swiglu",
               .doc = "gate_up = X·Wᵀ, of which the first half of the columns are gates, and h = "
                      "silu(gate) · up of what that is rounded to.",
               .inputs = {"x", "w"},
               .outputs = {"gate_up", "h"},
               .attrs = {{"unread", AttrKind::kBool, AttrValue(false),
                          "nobody reads gate_up; a device that stores it has room for it"}},
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = gated_types,
               .accepts = rules::contiguous,
               .decompose = gated_parts,
               .flops = gated_flops,
               .only_on_gpus = true,
               .stays_whole = true});

  register_op({.name = "matmul_swiglu_grad",
               .doc = "The gradients of gate and up, side by side, for the gradient dY·W of h, "
                      "rounded first.",
               .inputs = {"dy", "w", "gate_up"},
               .outputs = {"d_gate_up"},
               .kernel_class = KernelClass::kGemm,
               .precision_class = PrecisionClass::kLow,
               .infer = gradient_type,
               .accepts = rules::contiguous,
               .decompose = gradient_parts,
               .flops = gated_flops,
               .only_on_gpus = true,
               .stays_whole = true});
}

}  // namespace tracestep::ops

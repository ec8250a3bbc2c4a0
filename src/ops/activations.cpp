// SiLU, GELU and SwiGLU with their gradients; each is one elementwise kernel.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

void register_silu() {
  register_op(
      {.name = "silu",
       .doc = "x · sigmoid(x)",
       .source = "Elfwing et al. 2017",
       .inputs = {"x"},
       .outputs = {"y"},
       .fusion = Fusion::kElementwise,
       .composite = Composite::kSwiglu,
       .infer = rules::same_floating,
       .accepts = rules::any_strides,
       .gradient =
           [](Expansion e) {
             return std::vector{e.builder.call1("silu_grad", {e.output_grads[0], e.inputs[0]})};
           },
       .decompose =
           [](Expansion e) { return std::vector{mul(e.inputs[0], unary("sigmoid", e.inputs[0]))}; },
       .flops = rules::per_result(5),
       .donates = {{0, 0}},
       .cheap_to_recompute = true});

  register_op({.name = "silu_grad",
               .doc = "dy · s(x) (1 + x (1 - s(x))), with s the sigmoid",
               .inputs = {"dy", "x"},
               .outputs = {"dx"},
               .fusion = Fusion::kElementwise,
               .composite = Composite::kSwiglu,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .decompose =
                   [](Expansion e) {
                     const Val dy = e.inputs[0], x = e.inputs[1];
                     const Val s = unary("sigmoid", x);
                     const Val inner = affine(mul(x, affine(s, -1.0, 1.0)), 1.0, 1.0);
                     return std::vector{mul(dy, mul(s, inner))};
                   },
               .flops = rules::per_result(9),
               .donates = {{0, 0}, {0, 1}},
               .cheap_to_recompute = true});
}

// u of gelu(x) = x · sigmoid(u), and du/dx: x (a + b x²) and a + 3b x².
constexpr double kGeluLinear = 1.5957691216057308;  // a = 2√(2/π)
constexpr double kGeluCubic = 0.07135481627260025;  // b = 0.044715 a
Val gelu_argument(Val x) {
  return mul(x, affine(unary("square", x), kGeluCubic, kGeluLinear));
}
Val gelu_argument_slope(Val x) {
  return affine(unary("square", x), 3 * kGeluCubic, kGeluLinear);
}

void register_gelu() {
  register_op(
      {.name = "gelu",
       .doc = "x · sigmoid(2√(2/π) (x + 0.044715 x³)), the tanh form of GELU",
       .source = "Hendrycks and Gimpel 2016, section 2",
       .inputs = {"x"},
       .outputs = {"y"},
       .fusion = Fusion::kElementwise,
       .composite = Composite::kSwiglu,
       .infer = rules::same_floating,
       .accepts = rules::any_strides,
       .gradient =
           [](Expansion e) {
             return std::vector{e.builder.call1("gelu_grad", {e.output_grads[0], e.inputs[0]})};
           },
       .decompose =
           [](Expansion e) {
             return std::vector{mul(e.inputs[0], unary("sigmoid", gelu_argument(e.inputs[0])))};
           },
       .flops = rules::per_result(9),
       .donates = {{0, 0}},
       .cheap_to_recompute = true});

  register_op(
      {.name = "gelu_grad",
       .doc = "dy · s (1 + x (1 - s) du/dx), with s the sigmoid of u, of which gelu is x · s",
       .inputs = {"dy", "x"},
       .outputs = {"dx"},
       .fusion = Fusion::kElementwise,
       .composite = Composite::kSwiglu,
       .infer = rules::same_floating,
       .accepts = rules::any_strides,
       .decompose =
           [](Expansion e) {
             const Val dy = e.inputs[0], x = e.inputs[1];
             const Val s = unary("sigmoid", gelu_argument(x));
             const Val rest = mul(affine(s, -1.0, 1.0), gelu_argument_slope(x));
             return std::vector{mul(dy, mul(s, affine(mul(x, rest), 1.0, 1.0)))};
           },
       .flops = rules::per_result(17),
       .donates = {{0, 0}, {0, 1}},
       .cheap_to_recompute = true});
}

void register_swiglu() {
  register_op(
      {.name = "swiglu",
       .doc = "silu(gate) · up",
       .source = "Shazeer 2020, GLU Variants",
       .inputs = {"gate", "up"},
       .outputs = {"y"},
       .fusion = Fusion::kElementwise,
       .composite = Composite::kSwiglu,
       .infer = rules::same_floating,
       .accepts = rules::any_strides,
       .gradient =
           [](Expansion e) {
             return e.builder.call(find_op("swiglu_grad"),
                                   {e.output_grads[0], e.inputs[0], e.inputs[1]});
           },
       .decompose = [](Expansion e) { return std::vector{mul(silu(e.inputs[0]), e.inputs[1])}; },
       .flops = rules::per_result(6),
       .donates = {{0, 0}, {0, 1}},
       .cheap_to_recompute = true});

  register_op({.name = "swiglu_grad",
               .doc = "Gradients of gate and up, with the sigmoid computed again.",
               .inputs = {"dy", "gate", "up"},
               .outputs = {"dgate", "dup"},
               .fusion = Fusion::kElementwise,
               .composite = Composite::kSwiglu,
               .infer =
                   [](const OpCall& c) {
                     const Type type = rules::same_floating(c)[0];
                     return std::vector{type, type};
                   },
               .accepts = rules::any_strides,
               .writes = rules::any_strides,
               .decompose =
                   [](Expansion e) {
                     const Val dy = e.inputs[0], gate = e.inputs[1], up = e.inputs[2];
                     const Val dgate = e.builder.call1("silu_grad", {mul(dy, up), gate});
                     return std::vector{dgate, mul(dy, silu(gate))};
                   },
               .flops = rules::per_result(12),
               .donates = {{0, 1}, {1, 2}},
               .cheap_to_recompute = true});
}

}  // namespace

void register_activations() {
  register_silu();
  register_gelu();
  register_swiglu();
}

}  // namespace tracestep::ops

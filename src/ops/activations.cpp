// SiLU, GELU and SwiGLU with their gradients; each is one elementwise kernel.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;

// An activation y = x · sigmoid(u(x)); SiLU and GELU differ in u alone.
struct SigmoidGate {
  std::string name, doc, source, grad_doc;
  Val (*argument)(Val x);          // u
  Val (*slope)(Val x);             // du/dx; nullptr: 1
  std::int64_t flops, grad_flops;  // of one element
};

// Returns the gradient dy · s (1 + x (1 - s) du/dx), with s the sigmoid of u.
Val gate_gradient(const SigmoidGate& gate, Val dy, Val x) {
  const Val s = unary("sigmoid", gate.argument(x));
  const Val rest =
      gate.slope != nullptr ? mul(affine(s, -1.0, 1.0), gate.slope(x)) : affine(s, -1.0, 1.0);
  return mul(dy, mul(s, affine(mul(x, rest), 1.0, 1.0)));
}

void register_gate(const SigmoidGate& gate) {
  register_op({.name = gate.name,
               .doc = gate.doc,
               .source = gate.source,
               .inputs = {"x"},
               .outputs = {"y"},
               .fusion = Fusion::kElementwise,
               .composite = Composite::kSwiglu,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .gradient =
                   [grad = gate.name + "_grad"](Expansion e) {
                     return std::vector{e.builder.call1(grad, {e.output_grads[0], e.inputs[0]})};
                   },
               .decompose =
                   [gate](Expansion e) {
                     const Val x = e.inputs[0];
                     return std::vector{mul(x, unary("sigmoid", gate.argument(x)))};
                   },
               .flops = rules::per_result(gate.flops),
               .donates = {{0, 0}},
               .cheap_to_recompute = true});

  register_op({.name = gate.name + "_grad",
               .doc = gate.grad_doc,
               .inputs = {"dy", "x"},
               .outputs = {"dx"},
               .fusion = Fusion::kElementwise,
               .composite = Composite::kSwiglu,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .decompose =
                   [gate](Expansion e) {
                     return std::vector{gate_gradient(gate, e.inputs[0], e.inputs[1])};
                   },
               .flops = rules::per_result(gate.grad_flops),
               .donates = {{0, 0}, {0, 1}},
               .cheap_to_recompute = true});
}

void register_silu() {
  register_gate({.name = "silu",
                 .doc = "x · sigmoid(x)",
                 .source = "Elfwing et al. 2017",
                 .grad_doc = "dy · s(x) (1 + x (1 - s(x))), with s the sigmoid",
                 .argument = [](Val x) { return x; },
                 .slope = nullptr,
                 .flops = 5,
                 .grad_flops = 9});
}

// The coefficients of GELU's u = x (a + b x²), of which du/dx = a + 3b x².
constexpr double kGeluLinear = 1.5957691216057308;  // a = 2√(2/π)
constexpr double kGeluCubic = 0.07135481627260025;  // b = 0.044715 a

void register_gelu() {
  register_gate(
      {.name = "gelu",
       .doc = "x · sigmoid(2√(2/π) (x + 0.044715 x³)), the tanh form of GELU",
       .source = "Hendrycks and Gimpel 2016, section 2",
       .grad_doc = "dy · s (1 + x (1 - s) du/dx), with s the sigmoid of u, of which gelu is x · s",
       .argument =
           [](Val x) { return mul(x, affine(unary("square", x), kGeluCubic, kGeluLinear)); },
       .slope = [](Val x) { return affine(unary("square", x), 3 * kGeluCubic, kGeluLinear); },
       .flops = 9,
       .grad_flops = 17});
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

// Registers GELU by the error function: x · Φ(x).
void register_gelu_erf() {
  register_op(
      {.name = "gelu_erf",
       .doc = "x · Φ(x), with Φ the normal distribution function: GELU itself",
       .source = "Hendrycks and Gimpel 2016, section 2",
       .inputs = {"x"},
       .outputs = {"y"},
       .fusion = Fusion::kElementwise,
       .composite = Composite::kSwiglu,
       .infer = rules::same_floating,
       .accepts = rules::any_strides,
       .gradient =
           [](Expansion e) {
             return std::vector{e.builder.call1("gelu_erf_grad", {e.output_grads[0], e.inputs[0]})};
           },
       .decompose =
           [](Expansion e) {
             return std::vector{mul(e.inputs[0], unary("normal_cdf", e.inputs[0]))};
           },
       .flops = rules::per_result(17),
       .donates = {{0, 0}},
       .cheap_to_recompute = true});

  register_op({.name = "gelu_erf_grad",
               .doc = "dy · (Φ(x) + x φ(x)), with φ the normal density",
               .inputs = {"dy", "x"},
               .outputs = {"dx"},
               .fusion = Fusion::kElementwise,
               .composite = Composite::kSwiglu,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .decompose =
                   [](Expansion e) {
                     const Val dy = e.inputs[0], x = e.inputs[1];
                     constexpr double kPeak = 0.3989422804014327;  // φ(0) = 1/√(2π)
                     const Val density =
                         affine(unary("exp", affine(unary("square", x), -0.5)), kPeak);
                     return std::vector{mul(dy, add(unary("normal_cdf", x), mul(x, density)))};
                   },
               .flops = rules::per_result(24),
               .donates = {{0, 0}, {0, 1}},
               .cheap_to_recompute = true});
}

}  // namespace

void register_activations() {
  register_silu();
  register_gelu();
  register_gelu_erf();
  register_swiglu();
}

}  // namespace tracestep::ops

// Elementwise arithmetic, comparison, selection and casts. The arithmetic itself is in
// ops/scalar/functors.h; these records hold what autograd, planner and docs need.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

using Expansion = const OpExpansion&;
using Gradient = std::function<std::vector<Val>(const OpExpansion&)>;
using TypeRule = std::function<std::vector<Type>(const OpCall&)>;

struct Elementwise {
  std::string name;
  std::string doc;
  std::int64_t flops;
  Gradient gradient;
  bool is_sum = false;
};

void register_unary(const Elementwise& e) {
  register_op({.name = e.name,
               .doc = e.doc,
               .inputs = {"x"},
               .outputs = {"y"},
               .fusion = Fusion::kElementwise,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .gradient = e.gradient,
               .flops = rules::per_result(e.flops),
               .donates = {{0, 0}},
               .cheap_to_recompute = true});
}

void register_binary(const Elementwise& e, TypeRule infer = rules::same_type) {
  register_op({.name = e.name,
               .doc = e.doc,
               .inputs = {"a", "b"},
               .outputs = {"y"},
               .fusion = Fusion::kElementwise,
               .infer = std::move(infer),
               .accepts = rules::any_strides,
               .gradient = e.gradient,
               .flops = rules::per_result(e.flops),
               .is_sum = e.is_sum,
               .donates = {{0, 0}, {0, 1}},
               .cheap_to_recompute = true});
}

void register_compare(const std::string& name, const std::string& doc) {
  register_op({.name = name,
               .doc = doc,
               .inputs = {"a", "b"},
               .outputs = {"y"},
               .fusion = Fusion::kElementwise,
               .infer =
                   [](const OpCall& c) {
                     Type type = rules::same_type(c)[0];
                     type.dtype = DType::kBool;
                     return std::vector{type};
                   },
               .accepts = rules::any_strides,
               .flops = rules::per_result(1),
               .cheap_to_recompute = true});
}

Val zero_like(Expansion e, Val x) {
  return broadcast_to(fill(e.builder, 0.0, {x.dtype(), {}}), x.shape());
}

void register_unaries() {
  register_unary(
      {"neg", "-x", 1, [](Expansion e) { return std::vector{unary("neg", e.output_grads[0])}; }});
  register_unary({"abs", "|x|; gradient 0 at 0", 1, [](Expansion e) {
                    const Val g = e.output_grads[0], x = e.inputs[0], zero = zero_like(e, x);
                    const Val right = select(binary("lt", zero, x), g, zero);
                    return std::vector{select(binary("lt", x, zero), unary("neg", g), right)};
                  }});
  register_unary({"square", "x²", 1, [](Expansion e) {
                    return std::vector{mul(affine(e.output_grads[0], 2.0), e.inputs[0])};
                  }});
  register_unary({"reciprocal", "1/x", 1, [](Expansion e) {
                    const Val y = e.outputs[0];
                    return std::vector{unary("neg", mul(e.output_grads[0], mul(y, y)))};
                  }});
  register_unary({"exp", "e^x", 1,
                  [](Expansion e) { return std::vector{mul(e.output_grads[0], e.outputs[0])}; }});
  register_unary({"log", "Natural logarithm.", 1,
                  [](Expansion e) { return std::vector{div(e.output_grads[0], e.inputs[0])}; }});
  register_unary({"sqrt", "√x", 1, [](Expansion e) {
                    return std::vector{div(affine(e.output_grads[0], 0.5), e.outputs[0])};
                  }});
  register_unary({"rsqrt", "1/√x", 1, [](Expansion e) {
                    const Val y = e.outputs[0];
                    return std::vector{mul(affine(e.output_grads[0], -0.5), mul(y, mul(y, y)))};
                  }});
  register_unary({"sigmoid", "1/(1+e^-x)", 4, [](Expansion e) {
                    const Val s = e.outputs[0];
                    return std::vector{mul(e.output_grads[0], mul(s, affine(s, -1.0, 1.0)))};
                  }});
  register_unary({"tanh", "Hyperbolic tangent.", 6, [](Expansion e) {
                    const Val y = e.outputs[0];
                    return std::vector{
                        mul(e.output_grads[0], affine(unary("square", y), -1.0, 1.0))};
                  }});
  register_unary({"normal_cdf", "The standard normal distribution function, erfc(-x/√2)/2", 16,
                  [](Expansion e) {
                    const Val density = unary("exp", affine(unary("square", e.inputs[0]), -0.5));
                    constexpr double kPeak = 0.3989422804014327;  // 1/√(2π)
                    return std::vector{mul(e.output_grads[0], affine(density, kPeak))};
                  }});
  register_unary({"relu", "max(x, 0), NaN for NaN; gradient 0 at 0", 1, [](Expansion e) {
                    const Val zero = zero_like(e, e.outputs[0]);
                    return std::vector{
                        select(binary("lt", zero, e.outputs[0]), e.output_grads[0], zero)};
                  }});
}

void register_binaries() {
  register_binary({"add", "a + b; of truth values: either", 1,
                   [](Expansion e) {
                     return std::vector{e.output_grads[0], e.output_grads[0]};
                   },
                   true});
  register_binary({"sub", "a - b", 1, [](Expansion e) {
                     return std::vector{e.output_grads[0],
                                        e.wanted[1] ? unary("neg", e.output_grads[0]) : Val{}};
                   }});
  register_binary({"mul", "a · b; of truth values: both", 1, [](Expansion e) {
                     const Val g = e.output_grads[0];
                     return std::vector{e.wanted[0] ? mul(g, e.inputs[1]) : Val{},
                                        e.wanted[1] ? mul(g, e.inputs[0]) : Val{}};
                   }});
  // Floating only: integers have no infinity, and no single way to round.
  register_binary({"div", "a / b, of floating operands", 1,
                   [](Expansion e) {
                     const Val g = e.output_grads[0], b = e.inputs[1];
                     std::vector<Val> out(2);
                     if (e.wanted[0]) out[0] = div(g, b);
                     if (e.wanted[1]) out[1] = unary("neg", mul(g, div(e.outputs[0], b)));
                     return out;
                   }},
                  rules::same_floating);
  // If both operands are equal, the first one gets the whole gradient.
  const auto pick = [](bool larger) {
    return [larger](Expansion e) {
      const Val a = e.inputs[0], b = e.inputs[1], g = e.output_grads[0];
      const Val first = larger ? binary("le", b, a) : binary("le", a, b);
      const Val zero = zero_like(e, g);
      return std::vector{select(first, g, zero), select(first, zero, g)};
    };
  };
  register_binary({"maximum", "The larger operand; NaN where either is NaN.", 1, pick(true)});
  register_binary({"minimum", "The smaller operand; NaN where either is NaN.", 1, pick(false)});
}

void register_others() {
  register_compare("eq", "a = b");
  register_compare("lt", "a < b");
  register_compare("le", "a ≤ b");

  register_op({.name = "affine",
               .doc = "scale · x + shift, with constants",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {{"scale", AttrKind::kReal, AttrValue(1.0), "factor"},
                         {"shift", AttrKind::kReal, AttrValue(0.0), "summand"}},
               .fusion = Fusion::kElementwise,
               .infer = rules::same_floating,
               .accepts = rules::any_strides,
               .gradient =
                   [](Expansion e) {
                     return std::vector{affine(e.output_grads[0], e.attrs.real("scale"))};
                   },
               .identity =
                   [](Expansion e) {
                     const bool same = e.attrs.real("scale") == 1.0 && e.attrs.real("shift") == 0.0;
                     return same ? e.inputs[0] : Val{};
                   },
               .flops = rules::per_result(2),
               .donates = {{0, 0}},
               .cheap_to_recompute = true});

  register_op({.name = "select",
               .doc = "a where the condition holds, otherwise b",
               .inputs = {"condition", "a", "b"},
               .outputs = {"y"},
               .fusion = Fusion::kElementwise,
               .infer =
                   [](const OpCall& c) {
                     if (c.inputs[0].dtype != DType::kBool) {
                       fail_usage(c.op, "the condition is {}; bool is expected", c.inputs[0].str());
                     }
                     rules::require_same_dtype(c, 1, 2);
                     rules::require_shape(c, 1, c.inputs[0].shape);
                     rules::require_shape(c, 2, c.inputs[0].shape);
                     return std::vector{c.inputs[1]};
                   },
               .accepts = rules::any_strides,
               .gradient =
                   [](Expansion e) {
                     const Val g = e.output_grads[0], zero = zero_like(e, g);
                     return std::vector{Val{}, e.wanted[1] ? select(e.inputs[0], g, zero) : Val{},
                                        e.wanted[2] ? select(e.inputs[0], zero, g) : Val{}};
                   },
               .donates = {{0, 1}, {0, 2}},
               .cheap_to_recompute = true});

  register_op({.name = "cast",
               .doc = "The same values in another dtype, rounded to nearest even.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {{"dtype", AttrKind::kDType, std::nullopt, "target"}},
               .precision_class = PrecisionClass::kKeep,
               .fusion = Fusion::kElementwise,
               .infer =
                   [](const OpCall& c) {
                     return std::vector{Type{c.attrs.dtype("dtype"), c.inputs[0].shape}};
                   },
               .accepts = rules::any_strides,
               .gradient =
                   [](Expansion e) {
                     const DType from = e.inputs[0].dtype();
                     if (!is_floating(from)) return std::vector{Val{}};
                     return std::vector{cast(e.output_grads[0], from)};
                   },
               .identity =
                   [](Expansion e) {
                     return e.attrs.dtype("dtype") == e.inputs[0].dtype() ? e.inputs[0] : Val{};
                   },
               .only_converts = true,
               .cheap_to_recompute = true});
}

}  // namespace

void register_elementwise() {
  register_unaries();
  register_binaries();
  register_others();
}

}  // namespace tracestep::ops

#include "codegen/device_expressions.h"

#include <cmath>

#include <fmt/ranges.h>

#include "base/error.h"
#include "ir/op_def.h"
#include "ops/scalar/functors.h"

namespace tracestep {
namespace {

// Returns the functor's name for an op, "Add" for "add".
std::string_view functor_of(std::string_view op) {
#define TRACESTEP_NAME(name, functor) \
  if (op == #name) return #functor;
  TRACESTEP_UNARY_OPS(TRACESTEP_NAME)
  TRACESTEP_BINARY_OPS(TRACESTEP_NAME)
  TRACESTEP_FLOATING_BINARY_OPS(TRACESTEP_NAME)
  TRACESTEP_COMPARE_OPS(TRACESTEP_NAME)
#undef TRACESTEP_NAME
  TRACESTEP_CHECK(false, "no functor computes {}", op);
}

// Writes `x` as an operand of a functor: of type Real or, for narrow operands, Rough; a bool as is.
std::string number(DType dtype, const std::string& x) {
  if (dtype == DType::kBool) return x;
  return fmt::format("{}{{{}}}", dtype == DType::kF32 ? "Real" : "Rough", x);
}

std::string converted(DType from, DType to, const std::string& x) {
  if (to == DType::kBool) return x + " != 0.0f";
  if (from == DType::kBool) return x + " ? 1.0f : 0.0f";
  return rounded(to, x);
}

}  // namespace

std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kBool: return "bool";
    default: return "float";
  }
}

std::string_view variable_type(DType dtype) {
  return dtype == DType::kBool ? "bool" : "float";
}

std::string literal(double value) {
  const auto x = static_cast<float>(value);
  if (std::isnan(x)) return "__uint_as_float(0x7fc00000u)";
  if (std::isinf(x)) return x > 0 ? "-minus_infinity()" : "minus_infinity()";
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string rounded(DType dtype, const std::string& x) {
  if (dtype == DType::kF32 || dtype == DType::kBool) return x;
  return fmt::format("rounded<{}>({})", element_type(dtype), x);
}

DeviceExpressions device_expressions(const Program& program, const Node& node,
                                     std::span<const std::string> operands) {
  const ValueId y = node.outputs[0];
  const DType to = program.type(y).dtype;
  const auto dtype = [&](std::size_t i) { return program.type(node.inputs[i]).dtype; };
  if (node.op->name == "copy") return {{}, {operands[0]}};
  if (node.op->only_converts) return {{}, {converted(dtype(0), to, operands[0])}};
  if (node.op->name == "select") {
    return {{}, {fmt::format("{} ? {} : {}", operands[0], operands[1], operands[2])}};
  }
  if (node.op->name == "affine") {
    const std::string x =
        fmt::format("Affine()(Real{{{}}}, Real{{{}}}, Real{{{}}}).v", operands[0],
                    literal(node.attrs.real("scale")), literal(node.attrs.real("shift")));
    return {{}, {rounded(to, x)}};
  }
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < operands.size(); ++i)
    numbers.push_back(number(dtype(i), operands[i]));
  if (node.op->name == "swiglu_grad") {
    return {fmt::format("const auto r{} = SwigluGrad()({});", y, fmt::join(numbers, ", ")),
            {rounded(to, fmt::format("r{}.gate.v", y)), rounded(to, fmt::format("r{}.up.v", y))}};
  }
  const std::string_view functor = functor_of(node.op->name);
  if ((functor == "Add" || functor == "Sub") && to == DType::kF32) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      numbers[i] = fmt::format("Alone{{{}}}", operands[i]);
    }
  }
  const std::string x = fmt::format("{}()({})", functor, fmt::join(numbers, ", "));
  return {{}, {to == DType::kBool ? x : rounded(to, x + ".v")}};
}

}  // namespace tracestep

#include "backends/op_cases.h"

namespace tracestep::testing {
namespace {

OpTest unary(std::string op, double low = -2.0, double high = 2.0, Bound bound = Bound::kResult) {
  return {.op = std::move(op), .bound = bound, .cases = elementwise_cases(1, low, high)};
}

OpTest binary(std::string op, Bound bound, std::string terms_op = {}) {
  return {.op = std::move(op),
          .bound = bound,
          .cases = elementwise_cases(2),
          .dtypes = kNumberTypes,
          .terms_op = std::move(terms_op)};
}

OpTest compare(std::string op) {
  OpTest out{.op = std::move(op),
             .bound = Bound::kExact,
             .cases = elementwise_cases(2),
             .dtypes = kAllTypes,
             .gradient_outputs = {}};
  // Few different values, so that many pairs are equal.
  for (OpCase c : elementwise_cases(2)) {
    for (Operand& o : c.operands) o.holds = Holds::kIndex;
    out.cases.push_back(c);
  }
  return out;
}

OpTest cast() {
  OpTest out{.op = "cast", .bound = Bound::kExact, .dtypes = kAllTypes};
  for (DType narrow : {DType::kF8E4M3, DType::kF8E5M2}) out.dtypes.push_back(narrow);
  for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2,
                   DType::kI64, DType::kI32, DType::kBool}) {
    for (OpCase c : with_attrs(elementwise_cases(1, -90.0, 90.0), {{"dtype", to}})) {
      out.cases.push_back(c);
    }
  }
  // u8 has no room for negative numbers.
  for (OpCase c : with_attrs(elementwise_cases(1, 0.0, 200.0), {{"dtype", DType::kU8}})) {
    out.cases.push_back(c);
  }
  return out;
}

OpTest select() {
  OpTest out{.op = "select", .bound = Bound::kExact, .dtypes = kAllTypes};
  for (OpCase c : elementwise_cases(3)) {
    c.operands[0].holds = Holds::kBool;
    c.operands[0].differentiable = false;
    out.cases.push_back(c);
  }
  return out;
}

}  // namespace

std::vector<OpTest> elementwise_tests() {
  std::vector<OpTest> out{
      unary("neg", -2.0, 2.0, Bound::kExact),
      unary("abs", -2.0, 2.0, Bound::kExact),
      unary("relu", -2.0, 2.0, Bound::kExact),
      unary("square"),
      unary("reciprocal", 0.3, 3.0),
      unary("exp", -5.0, 5.0),
      unary("log", 0.05, 5.0),
      unary("sqrt", 0.01, 5.0),
      unary("rsqrt", 0.05, 5.0),
      unary("sigmoid", -9.0, 9.0),
      unary("tanh", -9.0, 9.0),
      unary("normal_cdf", -4.0, 4.0),
      binary("add", Bound::kTerms),
      binary("sub", Bound::kTerms, "add"),
      binary("mul", Bound::kResult),
      binary("div", Bound::kResult),
      binary("maximum", Bound::kExact),
      binary("minimum", Bound::kExact),
      compare("eq"),
      compare("lt"),
      compare("le"),
      {.op = "affine",
       .bound = Bound::kTerms,
       .cases = with_attrs(elementwise_cases(1), {{"scale", -1.7}, {"shift", 0.3}})},
      select(),
      cast(),
  };
  for (OpTest& test : out) {
    if (test.op == "add" || test.op == "sub" || test.op == "mul") {
      test.dtypes.push_back(DType::kBool);
    }
    if (test.op != "div") continue;
    test.cases = with_range(test.cases, 1, 1.0, 3.0);
    test.dtypes = kFloatingTypes;
  }
  return out;
}

}  // namespace tracestep::testing

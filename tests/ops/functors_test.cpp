// Each scalar functor, in double, against the reference kernel of the op it computes. Kernels of
// every back end instantiate these texts, so what holds here holds for their arithmetic.
#include "ops/scalar/functors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/functions.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep::testing {
namespace {

// A number for which the vocabulary of the functors is overloaded, found by its namespace.
struct Number {
  double v;
};
struct Truth {
  bool v;
};

Number operator+(Number a, Number b) {
  return {a.v + b.v};
}
Number operator-(Number a, Number b) {
  return {a.v - b.v};
}
Number operator*(Number a, Number b) {
  return {a.v * b.v};
}
Number operator/(Number a, Number b) {
  return {a.v / b.v};
}
Number constant(Number, float x) {
  return {static_cast<double>(x)};
}
Number exp(Number x) {
  return {std::exp(x.v)};
}
Number log(Number x) {
  return {std::log(x.v)};
}
Number sqrt(Number x) {
  return {std::sqrt(x.v)};
}
Number rsqrt(Number x) {
  return {1 / std::sqrt(x.v)};
}
Number abs(Number x) {
  return {std::abs(x.v)};
}
Number max(Number a, Number b) {
  return {std::max(a.v, b.v)};
}
Number min(Number a, Number b) {
  return {std::min(a.v, b.v)};
}
Truth less(Number a, Number b) {
  return {a.v < b.v};
}
Truth less_equal(Number a, Number b) {
  return {a.v <= b.v};
}
Truth equal(Number a, Number b) {
  return {a.v == b.v};
}
Number select(Truth c, Number a, Number b) {
  return c.v ? a : b;
}

// A grid with zero, both signs and repeated values; positive for ops that want it.
std::vector<double> grid(bool positive) {
  std::vector<double> out;
  for (int i = -24; i <= 24; ++i) out.push_back(positive ? (i + 25) / 8.0 : i / 4.0);
  return out;
}

// The reference's results of `op` on operands of the same length.
std::vector<double> reference_of(const std::string& op, const std::vector<std::vector<double>>& xs,
                                 const Attrs& attrs = {}) {
  ops::register_all();
  Builder b(op);
  const Shape shape{static_cast<std::int64_t>(xs[0].size())};
  std::vector<Val> operands;
  Tensors leaves;
  for (const std::vector<double>& x : xs) {
    const std::string name = fmt::format("x{}", operands.size());
    operands.push_back(b.input(name, {DType::kF64, shape}));
    leaves[name] = from_doubles(DType::kF64, shape, x);
  }
  b.output("y", b.call1(op, operands, attrs));
  return to_doubles(reference_values(b.finish(), leaves).at("y"));
}

// GELU's two constants are float32 in the functor; tanh and Φ are fits for float32.
void expect_equal(const std::string& op, const std::vector<double>& actual,
                  const std::vector<double>& expected) {
  const bool is_fit = op == "tanh" || op == "normal_cdf" || op.starts_with("gelu_erf");
  const double tolerance = is_fit ? 0x1p-22 : op.starts_with("gelu") ? 0x1p-24 : 1e-14;
  EXPECT_LE(max_difference(actual, expected), tolerance * max_abs(expected)) << op;
}

double as_double(Number x) {
  return x.v;
}
double as_double(Truth x) {
  return x.v ? 1.0 : 0.0;
}

template <class F>
void check_unary(const std::string& op, F f) {
  const bool positive = op == "log" || op == "sqrt" || op == "rsqrt" || op == "reciprocal";
  const std::vector<double> xs = grid(positive);
  std::vector<double> actual;
  for (double x : xs) actual.push_back(as_double(f(Number{x})));
  expect_equal(op, actual, reference_of(op, {xs}));
}

template <class F>
void check_binary(const std::string& op, F f) {
  std::vector<double> as, bs, actual;
  for (double a : grid(false)) {
    for (double b : grid(op == "div")) {
      as.push_back(a);
      bs.push_back(b);
      actual.push_back(as_double(f(Number{a}, Number{b})));
    }
  }
  expect_equal(op, actual, reference_of(op, {as, bs}));
}

TEST(FunctorsTest, EveryUnaryFunctorIsTheReference) {
#define CHECK_UNARY(op, Functor) check_unary(#op, scalar::Functor());
  TRACESTEP_UNARY_OPS(CHECK_UNARY)
#undef CHECK_UNARY
}

TEST(FunctorsTest, EveryBinaryFunctorIsTheReference) {
#define CHECK_BINARY(op, Functor) check_binary(#op, scalar::Functor());
  TRACESTEP_BINARY_OPS(CHECK_BINARY)
  TRACESTEP_FLOATING_BINARY_OPS(CHECK_BINARY)
#undef CHECK_BINARY
}

TEST(FunctorsTest, EveryComparisonIsTheReference) {
#define CHECK_COMPARE(op, Functor) check_binary(#op, scalar::Functor());
  TRACESTEP_COMPARE_OPS(CHECK_COMPARE)
#undef CHECK_COMPARE
}

TEST(FunctorsTest, AffineIsTheReference) {
  std::vector<double> actual;
  for (double x : grid(false)) {
    actual.push_back(scalar::Affine()(Number{x}, Number{-1.7}, Number{0.3}).v);
  }
  expect_equal("affine", actual,
               reference_of("affine", {grid(false)}, {{"scale", -1.7}, {"shift", 0.3}}));
}

TEST(FunctorsTest, AdamwIsTheReference) {
  ops::register_all();
  const double lr = 0.01, decay = 0.1, step_size = 0.02;
  const Type one{DType::kF64, {1}}, scalar_type{DType::kF64, {}};
  Builder b("adamw");
  const std::vector<Val> updated =
      b.call(find_op("adamw"),
             {b.input("p", one), b.input("g", one), b.input("m", one), b.input("v", one),
              b.input("lr", scalar_type), b.input("step_size", scalar_type)},
             {{"weight_decay", decay}});
  for (std::size_t i = 0; i < 3; ++i) b.output(fmt::format("y{}", i), updated[i]);
  const Program program = b.finish();

  const double p = 0.7, g = -1.3, m = 0.2, v = 0.05;
  const auto number = [](const Shape& shape, double x) {
    return from_doubles(DType::kF64, shape, std::vector{x});
  };
  const Tensors expected = reference_values(program, {{"p", number({1}, p)},
                                                      {"g", number({1}, g)},
                                                      {"m", number({1}, m)},
                                                      {"v", number({1}, v)},
                                                      {"lr", number({}, lr)},
                                                      {"step_size", number({}, step_size)}});
  const auto actual =
      scalar::Adamw()(Number{p}, Number{g}, Number{m}, Number{v}, Number{1 - lr * decay},
                      Number{step_size}, Number{0.9}, Number{0.999}, Number{1e-8});
  expect_equal("p", {actual.parameter.v}, to_doubles(expected.at("y0")));
  expect_equal("m", {actual.m.v}, to_doubles(expected.at("y1")));
  expect_equal("v", {actual.v.v}, to_doubles(expected.at("y2")));
}

}  // namespace
}  // namespace tracestep::testing

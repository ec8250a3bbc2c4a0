// Infinities, NaN, signed zeros and the ends of the range: what the kernels make of them must be
// what float64 arithmetic makes of them, because a skipped step is decided by such values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/op_matrix.h"
#include "ops/functions.h"
#include "ops/scalar/functors.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<double> kSpecial{0.0,  -0.0,  1.0,  -1.0, 1e-30, -1e-30, 3e38,  -3e38,
                                   kInf, -kInf, kNaN, 88.0, -88.0, 100.0,  -100.0};

// Expects NaN for NaN, the same infinity (float32 may reach it earlier), or a close number.
void expect_alike(const std::vector<double>& actual, const std::vector<double>& expected,
                  const std::vector<double>& inputs) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double want = static_cast<double>(static_cast<float>(expected[i]));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(actual[i])) << actual[i] << " at " << inputs[i % inputs.size()];
    } else if (std::isinf(want)) {
      EXPECT_EQ(actual[i], want) << "at " << inputs[i % inputs.size()];
    } else {
      // Results below the smallest normal float may be flushed to zero.
      EXPECT_NEAR(actual[i], want, 1e-5 * std::abs(want) + 2e-38)
          << "at " << inputs[i % inputs.size()];
    }
  }
}

class SpecialValuesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // Runs `program` (one output "y") on every back end and on the oracle.
  static void expect_agreement(const Program& program, const Tensors& leaves,
                               const std::vector<double>& inputs) {
    const std::vector<double> expected = to_doubles(reference_values(program, leaves).at("y"));
    for (const Backend& backend : backends_under_test()) {
      const auto device = backend.make({.threads = 2, .guarded = true});
      SCOPED_TRACE(program.name + " on " + backend.name);
      expect_alike(to_doubles(run_program(*device, program, leaves).at("y")), expected, inputs);
    }
  }

  static HostTensor floats(const std::vector<double>& values) {
    return from_doubles(DType::kF32, {static_cast<std::int64_t>(values.size())}, values);
  }
};

TEST_F(SpecialValuesTest, OpsOfOneOperand) {
#define NAME(op, Functor) #op,
  for (const char* op : {TRACESTEP_UNARY_OPS(NAME)}) {
#undef NAME
    const HostTensor x = floats(kSpecial);
    Builder b(op);
    b.output("y", ops::unary(op, b.input("x", {DType::kF32, x.shape})));
    expect_agreement(b.finish(), {{"x", x}}, kSpecial);
  }
}

// A NaN or an infinity is never taken for the largest, and is reported.
TEST_F(SpecialValuesTest, TheMostLikelyTokenIsANumberAndTellsOfOthers) {
  for (const std::vector<double>& logits : {std::vector{-0.0, 0.0, -1.0},
                                            {1.0, kNaN, 2.0},
                                            {kNaN, kNaN},
                                            {-kInf, -3.0},
                                            {1.0, kInf},
                                            {-kInf, -kInf},
                                            {-3e38, 3e38, 3e38}}) {
    const HostTensor x = floats(logits);
    Builder b("greedy_token");
    const std::vector<Val> token =
        b.call(find_op("greedy_token"), {b.input("x", {DType::kF32, x.shape})});
    b.output("y", ops::cast(ops::reshape(token[0], {1}), DType::kF32));
    b.output("checked", token[1]);
    const Program program = b.finish();
    expect_agreement(program, {{"x", x}}, logits);
    const bool is_finite =
        std::ranges::all_of(logits, [](double value) { return std::isfinite(value); });
    for (const Backend& backend : backends_under_test()) {
      const auto device = backend.make({.threads = 2, .guarded = true});
      const Tensors out = run_program(*device, program, {{"x", x}});
      EXPECT_EQ(to_doubles(out.at("checked"))[0], is_finite ? to_doubles(out.at("y"))[0] : -1.0)
          << backend.name;
    }
  }
}

TEST_F(SpecialValuesTest, OpsOfTwoOperands) {
  std::vector<double> left, right;
  for (double a : kSpecial) {
    for (double c : kSpecial) left.push_back(a), right.push_back(c);
  }
#define NAME(op, Functor) #op,
  for (const char* op : {TRACESTEP_BINARY_OPS(NAME) "div"}) {
#undef NAME
    const HostTensor x = floats(left), y = floats(right);
    Builder b(op);
    b.output("y", ops::binary(op, b.input("a", {DType::kF32, x.shape}),
                              b.input("b", {DType::kF32, y.shape})));
    expect_agreement(b.finish(), {{"a", x}, {"b", y}}, left);
  }
}

// Whole exponents are even beyond 2^24, also where no 64-bit integer holds them.
TEST_F(SpecialValuesTest, PowersOfNegativeNumbers) {
  std::vector<double> bases, exponents;
  for (const double a : {-2.0, -1.0, -0.5}) {
    for (const double b :
         {0.0, 1.0, -3.0, 4.0, 0.5, 0x1p24, 0x1p53, 0x1p63, -0x1p64, 0x1p100, kNaN}) {
      bases.push_back(a), exponents.push_back(b);
    }
  }
  const HostTensor a = floats(bases), b = floats(exponents);
  Builder builder("pow");
  const Val x = builder.input("a", {DType::kF32, a.shape});
  builder.output("y", builder.call1("pow", {x, builder.input("b", {DType::kF32, b.shape})}));
  expect_agreement(builder.finish(), {{"a", a}, {"b", b}}, exponents);
}

TEST_F(SpecialValuesTest, NotANumberWinsEveryMaximum) {
  for (const char* op : {"maximum", "minimum"}) {
    const std::vector<double> left{kNaN, 1.0, kNaN, kNaN, kInf},
        right{1.0, kNaN, kNaN, -kInf, kNaN};
    Builder b(op);
    b.output("y",
             ops::binary(op, b.input("a", {DType::kF32, {5}}), b.input("b", {DType::kF32, {5}})));
    const Tensors out = reference_values(b.finish(), {{"a", floats(left)}, {"b", floats(right)}});
    for (double y : to_doubles(out.at("y"))) EXPECT_TRUE(std::isnan(y)) << op;
  }
  // Puts the value at any place of a row, between larger and smaller numbers.
  for (std::size_t place : {0u, 1u, 500u, 1030u}) {
    std::vector<double> values(1031);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 17) - 8.0;
    values[place] = kNaN;
    const HostTensor x = floats(values);
    Builder b("max");
    b.output("y", ops::max(b.input("x", {DType::kF32, x.shape}), {0}));
    const Program program = b.finish();
    EXPECT_TRUE(std::isnan(to_doubles(reference_values(program, {{"x", x}}).at("y"))[0]));
    expect_agreement(program, {{"x", x}}, {kNaN});
  }
}

TEST_F(SpecialValuesTest, ComparisonsWithNaNAreFalse) {
  for (const char* op : {"eq", "lt", "le"}) {
    const std::vector<double> nans(kSpecial.size(), kNaN);
    const HostTensor x = floats(kSpecial), y = floats(nans);
    Builder b(op);
    const Val a = b.input("a", {DType::kF32, x.shape}), c = b.input("b", {DType::kF32, y.shape});
    b.output("y", ops::binary(op, a, c));
    expect_agreement(b.finish(), {{"a", x}, {"b", y}}, kSpecial);
  }
}

TEST_F(SpecialValuesTest, NotANumberAndInfinityReachEverySum) {
  for (double poison : {kNaN, kInf, -kInf}) {
    std::vector<double> values(1031, 0.5);
    values[700] = poison;
    const HostTensor x = floats(values);
    for (const bool norm : {false, true}) {
      Builder b(norm ? "global_norm" : "sum");
      const Val v = b.input("x", {DType::kF32, x.shape});
      b.output("y", norm ? ops::global_norm({v}) : ops::sum(v, {0}));
      expect_agreement(b.finish(), {{"x", x}}, {poison});
    }
  }
}

TEST_F(SpecialValuesTest, CastsRoundToNearestEvenUpToTheEnds) {
  // Halves between neighbours, the last finite numbers, subnormal ones, and beyond.
  const std::vector<double> values{1.0 + 0x1p-11, 1.0 + 3 * 0x1p-11,
                                   1.0 + 0x1p-8,  1.0 + 3 * 0x1p-8,
                                   65504.0,       65519.0,
                                   65520.0,       -1e30,
                                   0x1p-14,       0x1p-24,
                                   0x1p-25,       0x1.8p-25,
                                   3 * 0x1p-26,   kInf,
                                   -kInf,         kNaN,
                                   3.39e38,       -0.0,
                                   0x1p-133,      0x1p-130};
  const HostTensor x = floats(values);
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Builder b("cast");
    const Val narrow = ops::cast(b.input("x", {DType::kF32, x.shape}), dtype);
    b.output("y", narrow);
    b.output("back", ops::cast(narrow, DType::kF32));
    const Program program = b.finish();
    const std::vector<double> expected = to_doubles(converted(x, dtype));
    for (const Backend& backend : backends_under_test()) {
      const auto device = backend.make({.threads = 1, .guarded = true});
      const Tensors out = run_program(*device, program, {{"x", x}});
      EXPECT_EQ(max_difference(to_doubles(out.at("y")), expected), 0.0) << name_of(dtype);
      EXPECT_EQ(max_difference(to_doubles(out.at("back")), expected), 0.0) << name_of(dtype);
    }
  }
}

TEST_F(SpecialValuesTest, HiddenScoresGetNoWeight) {
  std::vector<double> values(37, 0.25);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -kInf;
  const HostTensor x = floats(values);
  Builder b("softmax");
  b.output("y", ops::softmax(b.input("x", {DType::kF32, x.shape})));
  expect_agreement(b.finish(), {{"x", x}}, values);
}

}  // namespace
}  // namespace tracestep::testing

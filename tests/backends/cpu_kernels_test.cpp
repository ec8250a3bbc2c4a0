// CPU kernels where they can go wrong by themselves: vector tails, strides, in-place results,
// causal rows, index errors, and the same bits for any number of threads.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "backends/cpu_support.h"

namespace tracestep {
namespace {

using cpu_test::dense;
using cpu_test::floats;
using cpu_test::integers;
using cpu_test::random_floats;
using cpu_test::run;
using cpu_test::values_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CpuKernelsTest, TheExponentialIsWithinAFewUlpUpToOverflow) {
  std::vector<float> x;
  for (float v = -86.9f; v < 88.7f; v += 0.0137f) x.push_back(v);
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<double> y = values_of(run("exp", {dense(floats(DType::kF32, {n}, x))})[0]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], exact, 1.2e-7 * exact) << x[i];
  }
}

// These two compute the exponential in a shorter way of their own.
TEST(CpuKernelsTest, SigmoidAndSiluAreWithinAFewUlp) {
  std::vector<float> x;
  for (float v = -85.0f; v < 85.0f; v += 0.0137f) x.push_back(v);
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<double> sigmoid =
      values_of(run("sigmoid", {dense(floats(DType::kF32, {n}, x))})[0]);
  const std::vector<double> silu = values_of(run("silu", {dense(floats(DType::kF32, {n}, x))})[0]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto v = static_cast<double>(x[i]);
    const double exact = 1 / (1 + std::exp(-v)), near = 2.5e-7 + (v < 0 ? -2e-8 * v : 0);
    ASSERT_NEAR(sigmoid[i], exact, near * exact) << v;
    ASSERT_NEAR(silu[i], v * exact, near * std::abs(v) * exact) << v;
  }
  const float ends[] = {-kInfinity, kInfinity, 200.0f, -200.0f, NAN};
  const std::vector<double> y =
      values_of(run("sigmoid", {dense(floats(DType::kF32, {5}, ends))})[0]);
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(y[1], 1.0);
  EXPECT_EQ(y[2], 1.0);
  EXPECT_EQ(y[3], 0.0);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST(CpuKernelsTest, TheExponentialOfTheExtremes) {
  const float x[] = {-kInfinity, kInfinity, 0.0f, 200.0f, -200.0f, NAN, 88.7228f, -0.0f};
  const std::vector<double> y = values_of(run("exp", {dense(floats(DType::kF32, {8}, x))})[0]);
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(y[1], std::numeric_limits<double>::infinity());
  EXPECT_EQ(y[2], 1.0);
  EXPECT_EQ(y[3], std::numeric_limits<double>::infinity());
  EXPECT_EQ(y[4], 0.0);
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_TRUE(std::isfinite(y[6]));
  EXPECT_EQ(y[7], 1.0);
}

// An element's result may not depend on where it stands in a vector.
TEST(CpuKernelsTest, TailsAreComputedLikeWholeVectors) {
  const HostTensor x = random_floats(DType::kF32, {67}, 3);
  for (const char* op : {"exp", "silu", "log", "rsqrt", "sigmoid"}) {
    const HostTensor all = run(op, {dense(x)})[0];
    for (std::int64_t i = 51; i < 67; ++i) {
      const HostTensor one = run(op, {{x, {1}, {1}, i}})[0];
      const float a = all.as<float>()[static_cast<std::size_t>(i)], b = one.as<float>()[0];
      EXPECT_TRUE(a == b || (a != a && b != b)) << op << ' ' << i;
    }
  }
}

TEST(CpuKernelsTest, StridedAndBroadcastOperandsAreRead) {
  const HostTensor x = random_floats(DType::kF32, {5, 7}, 1);
  const HostTensor row = random_floats(DType::kF32, {5}, 2);
  const auto y = values_of(run("add", {{x, {7, 5}, {1, 7}}, {row, {7, 5}, {0, 1}}})[0]);
  const auto xv = values_of(x), rv = values_of(row);
  for (std::size_t i = 0; i < 7; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(y[i * 5 + j], static_cast<double>(static_cast<float>(xv[j * 7 + i] + rv[j])));
    }
  }
}

TEST(CpuKernelsTest, IntegersAddAndCompare) {
  const std::int64_t a[] = {1, -5, std::int64_t{1} << 40}, b[] = {2, -5, 1};
  const auto x = dense(integers({3}, a)), y = dense(integers({3}, b));
  EXPECT_EQ(values_of(run("add", {x, y})[0]), (std::vector<double>{3, -10, 0x1p40 + 1}));
  EXPECT_EQ(values_of(run("le", {x, y})[0]), (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(values_of(run("maximum", {x, y})[0]), (std::vector<double>{2, -5, 0x1p40}));
}

TEST(CpuKernelsTest, CastsRoundToNearestEvenAndTruncateToIntegers) {
  const float x[] = {1.00390625f, 1.01171875f, -2.75f, 65519.0f, 65520.0f, 1e30f, NAN};
  const auto operand = dense(floats(DType::kF32, {7}, x));
  const auto bf16 = run("cast", {operand}, {{"dtype", DType::kBF16}})[0];
  const auto f16 = run("cast", {operand}, {{"dtype", DType::kF16}})[0];
  const auto i32 = run("cast", {operand}, {{"dtype", DType::kI32}})[0];
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(bf16.as<BF16>()[i].bits, to_bf16(x[i]).bits);
    EXPECT_EQ(f16.as<F16>()[i].bits, to_f16(x[i]).bits);
  }
  EXPECT_EQ(values_of(i32), (std::vector<double>{1, 1, -2, 65519, 65520, 2147483647, 0}));
}

TEST(CpuKernelsTest, CausalRowsHideTheFuture) {
  const auto x = dense(random_floats(DType::kF32, {2, 3, 5}, 4));
  const auto y = values_of(run("softmax", {x}, {{"causal", true}, {"scale", 0.5}})[0]);
  for (std::size_t row = 0; row < 6; ++row) {
    double total = 0;
    for (std::size_t j = 0; j < 5; ++j) {
      total += y[row * 5 + j];
      EXPECT_EQ(y[row * 5 + j] == 0.0, j > row % 3 + 2);
    }
    EXPECT_NEAR(total, 1.0, 1e-6);
  }
}

TEST(CpuKernelsTest, APositionMovesTheCausalEdge) {
  const std::int64_t position[] = {1};
  const auto x = dense(random_floats(DType::kBF16, {1, 5}, 4));
  const auto y = values_of(
      run("softmax", {x, dense(integers({}, position))}, {{"causal", true}, {"scale", 1.0}})[0]);
  EXPECT_GT(y[1], 0.0);
  EXPECT_EQ(y[2], 0.0);
}

TEST(CpuKernelsTest, SumsOverAnyAxesAreExactEnough) {
  const HostTensor x = random_floats(DType::kF32, {33, 70, 41}, 9);
  const auto v = values_of(x);
  for (const Dims& axes : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{0, 1}, Dims{0, 1, 2}}) {
    const auto got = values_of(run("sum", {dense(x)}, {{"axes", axes}, {"keepdims", true}})[0]);
    std::vector<double> sum(got.size()), terms(got.size());
    const auto has = [&](std::int64_t a) {
      return std::find(axes.begin(), axes.end(), a) != axes.end();
    };
    const std::int64_t d1 = has(1) ? 1 : 70, d2 = has(2) ? 1 : 41;
    for (std::int64_t i = 0, at = 0; i < 33; ++i) {
      for (std::int64_t j = 0; j < 70; ++j) {
        for (std::int64_t k = 0; k < 41; ++k, ++at) {
          const auto to = static_cast<std::size_t>(((has(0) ? 0 : i) * d1 + (has(1) ? 0 : j)) * d2 +
                                                   (has(2) ? 0 : k));
          sum[to] += v[static_cast<std::size_t>(at)];
          terms[to] += std::abs(v[static_cast<std::size_t>(at)]);
        }
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - sum[i]), 4 * 0x1p-24 * terms[i]) << axes.str();
    }
  }
}

TEST(CpuKernelsTest, MaximaKeepNaN) {
  const float x[] = {1, NAN, 3, 4, 7, 6};
  const auto y =
      values_of(run("max", {dense(floats(DType::kF32, {2, 3}, x))}, {{"axes", Dims{1}}})[0]);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 7.0);
  // Over rows, several of which are taken at once: one of four, and one of what is left over.
  std::vector<float> rows(11 * 3, 1.0f);
  rows[2 * 3] = NAN;
  rows[10 * 3 + 1] = NAN;
  rows[7 * 3 + 2] = 5;
  const auto z =
      values_of(run("max", {dense(floats(DType::kF32, {11, 3}, rows))}, {{"axes", Dims{0}}})[0]);
  EXPECT_TRUE(std::isnan(z[0]));
  EXPECT_TRUE(std::isnan(z[1]));
  EXPECT_EQ(z[2], 5.0);
}

TEST(CpuKernelsTest, ScatterAddSumsRepeatedRows) {
  const std::int64_t rows[] = {2, 0, 2};
  const float x[] = {1, 2, 3, 4, 5, 6};
  const auto y = values_of(run("scatter_add",
                               {dense(floats(DType::kF32, {3, 2}, x)), dense(integers({3}, rows))},
                               {{"rows", std::int64_t{4}}})[0]);
  EXPECT_EQ(y, (std::vector<double>{3, 4, 0, 0, 6, 8, 0, 0}));
}

TEST(CpuKernelsTest, AnIndexOutsideTheTableIsAnError) {
  const std::int64_t rows[] = {1, 4};
  try {
    run("gather", {dense(random_floats(DType::kF32, {4, 3}, 1)), dense(integers({2}, rows))});
    FAIL() << "index 4 of 4 rows was accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[gather] index 4 at position 1 is outside [0, 4)");
  }
}

TEST(CpuKernelsTest, WriteSliceWritesInPlace) {
  const std::int64_t position[] = {1};
  const float base[] = {1, 2, 3, 4, 5, 6, 7, 8}, piece[] = {-1, -2};
  const auto y =
      values_of(run("write_slice",
                    {dense(floats(DType::kF32, {2, 4, 1}, base)),
                     dense(floats(DType::kF32, {2, 1, 1}, piece)), dense(integers({}, position))},
                    {{"axis", std::int64_t{1}}}, {.donated = {0}})[0]);
  EXPECT_EQ(y, (std::vector<double>{1, -1, 3, 4, 5, -2, 7, 8}));
}

TEST(CpuKernelsTest, PadAndConcatPlaceTheirPieces) {
  const float x[] = {1, 2, 3, 4};
  const auto operand = dense(floats(DType::kF32, {2, 2}, x));
  EXPECT_EQ(
      values_of(run(
          "pad_slice", {operand},
          {{"axis", std::int64_t{1}}, {"start", std::int64_t{1}}, {"size", std::int64_t{4}}})[0]),
      (std::vector<double>{0, 1, 2, 0, 0, 3, 4, 0}));
  EXPECT_EQ(values_of(run("concat", {operand, operand}, {{"axis", std::int64_t{1}}})[0]),
            (std::vector<double>{1, 2, 1, 2, 3, 4, 3, 4}));
}

TEST(CpuKernelsTest, AdamwInPlaceEqualsAdamwOutOfPlace) {
  const float lr[] = {1e-3f}, step[] = {2e-3f}, scale[] = {0.5f};
  HostTensor v = random_floats(DType::kF32, {1003}, 4);
  for (float& x : v.as<float>()) x = std::abs(x);
  const std::vector<cpu_test::Operand> inputs = {
      dense(random_floats(DType::kF32, {1003}, 1)), dense(random_floats(DType::kBF16, {1003}, 2)),
      dense(random_floats(DType::kF32, {1003}, 3)), dense(v),
      dense(floats(DType::kF32, {}, lr)),           dense(floats(DType::kF32, {}, step)),
      dense(floats(DType::kF32, {}, scale))};
  const Attrs attrs{{"weight_decay", 0.1}};
  const auto fresh = run("adamw", inputs, attrs);
  const auto in_place = run("adamw", inputs, attrs, {.donated = {0, 2, 3}});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fresh[i].bytes, in_place[i].bytes);
  // The expected value of one element is computed by hand.
  const double p = values_of(inputs[0].storage)[7], g = 0.5 * values_of(inputs[1].storage)[7];
  const double m = 0.9 * values_of(inputs[2].storage)[7] + 0.1 * g;
  const double v1 = 0.999 * values_of(v)[7] + 0.001 * g * g;
  EXPECT_NEAR(values_of(fresh[0])[7], p * (1 - 1e-4) - 2e-3 * m / (std::sqrt(v1) + 1e-8), 1e-6);
}

TEST(CpuKernelsTest, BitsDoNotDependOnThreads) {
  const auto x = dense(random_floats(DType::kF32, {700, 300}, 1));
  const auto dy = dense(random_floats(DType::kF32, {700, 300}, 2));
  const auto w = dense(random_floats(DType::kF32, {300}, 3));
  const auto rstd = dense(random_floats(DType::kF32, {700}, 4));
  struct Case {
    const char* op;
    std::vector<cpu_test::Operand> inputs;
    Attrs attrs;
  };
  const Case cases[] = {{"sum", {x}, {{"axes", Dims{0}}}},
                        {"sum", {x}, {{"axes", Dims{0, 1}}}},
                        {"softmax", {x}, {}},
                        {"rms_norm_grad", {dy, x, w, rstd}, {}},
                        {"global_norm", {x, dy, w}, {}},
                        {"swiglu_grad", {dy, x, x}, {}}};
  for (const Case& c : cases) {
    const auto expected = run(c.op, c.inputs, c.attrs, {.threads = 1});
    for (const int threads : {2, 3, 7, 16}) {
      const auto y = run(c.op, c.inputs, c.attrs, {.threads = threads});
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i].bytes, expected[i].bytes) << c.op << ", " << threads << " threads";
      }
    }
  }
}

TEST(CpuKernelsTest, EveryOpThatNeedsAKernelHasOne) {
  ops::register_all();
  const auto device = make_cpu_device({.threads = 1});
  for (const OpDef* op : all_ops()) {
    const bool elsewhere = op->is_view() || op->always_decompose || op->decompose != nullptr ||
                           op->kernel_class == KernelClass::kCollective;
    EXPECT_TRUE(elsewhere || device->has_kernel(*op)) << op->name;
  }
}

}  // namespace
}  // namespace tracestep

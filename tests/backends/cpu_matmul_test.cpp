// matmul on the CPU: every layout, storage type and edge against a float64 product, and the same
// bits for any number of threads.
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>

#include <gtest/gtest.h>

#include "backends/cpu_support.h"
#include "planning/cpu_plans.h"

namespace tracestep {
namespace {

using cpu_test::Operand;

struct Case {
  std::int64_t batch, m, n, k;
  bool ta = false, tb = false;
  DType dtype = DType::kF32;
};

struct Sides {
  Operand a, b;
};

Sides operands(const Case& c) {
  const Shape a = c.ta ? Shape{c.batch, c.k, c.m} : Shape{c.batch, c.m, c.k};
  const Shape b = c.tb ? Shape{c.batch, c.n, c.k} : Shape{c.batch, c.k, c.n};
  return {cpu_test::dense(cpu_test::random_floats(c.dtype, a, 1)),
          cpu_test::dense(cpu_test::random_floats(c.dtype, b, 2))};
}

double at(const Operand& x, const std::vector<double>& values, std::int64_t batch, std::int64_t i,
          std::int64_t j) {
  const std::int64_t index = x.offset + batch * x.strides[0] + i * x.strides[1] + j * x.strides[2];
  return values[static_cast<std::size_t>(index)];
}

// |error| <= 16·2^-24·Σ|terms|, plus 1.02 roundings to low precision.
void expect_product(const Case& c, const Sides& s) {
  const auto y =
      cpu_test::run("matmul", {s.a, s.b}, {{"transpose_a", c.ta}, {"transpose_b", c.tb}});
  const std::vector<double> a = cpu_test::values_of(s.a.storage);
  const std::vector<double> b = cpu_test::values_of(s.b.storage);
  const std::vector<double> got = cpu_test::values_of(y[0]);
  const double half_ulp = c.dtype == DType::kBF16 ? 0x1p-9 : c.dtype == DType::kF16 ? 0x1p-12 : 0;
  std::size_t at_y = 0;
  for (std::int64_t batch = 0; batch < c.batch; ++batch) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j, ++at_y) {
        double sum = 0, terms = 0;
        for (std::int64_t k = 0; k < c.k; ++k) {
          const double x = c.ta ? at(s.a, a, batch, k, i) : at(s.a, a, batch, i, k);
          const double w = c.tb ? at(s.b, b, batch, j, k) : at(s.b, b, batch, k, j);
          sum += x * w;
          terms += std::abs(x * w);
        }
        // float16 has subnormals of 2^-24 here.
        const double bound =
            16 * 0x1p-24 * terms + 1.02 * 2 * half_ulp * std::abs(sum) + (half_ulp > 0 ? 1e-7 : 0);
        ASSERT_LE(std::abs(got[at_y] - sum), bound) << batch << ',' << i << ',' << j;
      }
    }
  }
}

TEST(CpuMatmulTest, EveryOrientationAndOddSizeIsRight) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {2, 3, 5},
                                {7, 17, 31},
                                {16, 16, 16},
                                {13, 1, 300},
                                {1, 70, 301},
                                {65, 129, 258},
                                {300, 410, 37},
                                {6, 400, 777},
                                {1, 1, 1000},
                                {271, 2, 8}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Case c{.batch = 1, .m = m, .n = n, .k = k, .ta = ta, .tb = tb};
        SCOPED_TRACE(testing::Message() << m << 'x' << n << 'x' << k << ' ' << ta << tb);
        expect_product(c, operands(c));
      }
    }
  }
}

TEST(CpuMatmulTest, LowPrecisionIsRoundedOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const auto& [m, n, k] :
             {std::array<std::int64_t, 3>{33, 65, 600}, {1, 40, 300}, {40, 1, 300}, {9, 9, 2048}}) {
          const Case c{.batch = 2, .m = m, .n = n, .k = k, .ta = ta, .tb = tb, .dtype = dtype};
          SCOPED_TRACE(testing::Message() << m << 'x' << n << 'x' << k << ' ' << ta << tb);
          expect_product(c, operands(c));
        }
      }
    }
  }
}

TEST(CpuMatmulTest, BatchesAndViewsAreRead) {
  const Case c{.batch = 3, .m = 10, .n = 12, .k = 9};
  Sides s = operands(c);
  // a: heads side by side, [10, 3, 9] seen as [3, 10, 9]; b: columns of a wider matrix.
  s.a.storage.shape = {10, 3, 9};
  s.a.strides = {9, 27, 1};
  s.b.storage = cpu_test::random_floats(DType::kF32, {3, 9, 20}, 5);
  s.b.strides = {180, 20, 1};
  s.b.offset = 4;
  expect_product(c, s);
}

TEST(CpuMatmulTest, OneMatrixServesAllBatches) {
  const Case c{.batch = 4, .m = 5, .n = 6, .k = 7};
  Sides s = operands(c);
  s.b.storage = cpu_test::random_floats(DType::kF32, {1, 7, 6}, 5);
  s.b.strides = {0, 6, 1};
  expect_product(c, s);
}

TEST(CpuMatmulTest, NothingToSumGivesZeros) {
  const auto y = cpu_test::run("matmul", {cpu_test::dense(HostTensor::zeros(DType::kF32, {3, 0})),
                                          cpu_test::dense(HostTensor::zeros(DType::kF32, {0, 4}))});
  for (const double v : cpu_test::values_of(y[0])) EXPECT_EQ(v, 0.0);
}

TEST(CpuMatmulTest, EmptyResultsAreFine) {
  const auto y = cpu_test::run("matmul", {cpu_test::dense(HostTensor::zeros(DType::kF32, {0, 5})),
                                          cpu_test::dense(HostTensor::zeros(DType::kF32, {5, 4}))});
  EXPECT_EQ(y[0].count(), 0);
}

// A thread packs rows for itself, or all threads for each other: of the whole product, or of one
// panel of its rows after the other. From four threads on that holds for both operands.
TEST(CpuMatmulTest, WhoPacksDoesNotMatter) {
  struct Sharing {
    Case product;
    int apart, together;  // threads that share nothing, and that share one operand
    std::int64_t panels;  // of it
  };
  for (const auto& [c, apart, together, panels] :
       {Sharing{{1, 98, 97, 693, false, true}, 1, 5, 1},
        Sharing{{1, 98, 97, 693, true, false}, 1, 5, 1},
        Sharing{{1, 98, 97, 693, true, true, DType::kF16}, 1, 5, 1},
        Sharing{{1, 130, 161, 693, true, false, DType::kBF16}, 1, 8, 1},
        Sharing{{1, 130, 161, 693, false, true, DType::kBF16}, 1, 8, 1},
        Sharing{{1, 1100, 200, 2500, false, true}, 1, 7, 1},
        Sharing{{1, 3000, 70, 1100, false, true}, 1, 7, 1},
        Sharing{{1, 1300, 1400, 2500, false, true}, 1, 7, 3},
        Sharing{{1, 1400, 1300, 2500, true, false}, 1, 7, 2}}) {
    SCOPED_TRACE(testing::Message() << c.m << 'x' << c.n << 'x' << c.k);
    const auto plan_on = [&](int threads) {
      return plan_gemm(c.batch, c.m, c.n, c.k, c.dtype, c.dtype, threads);
    };
    const GemmPlan plan = plan_on(together);
    ASSERT_NE(plan.shares_a, plan.shares_b);
    ASSERT_FALSE(plan_on(apart).shares_a || plan_on(apart).shares_b);
    const std::int64_t of_a = (plan.blocks_m + plan.panel_blocks - 1) / plan.panel_blocks;
    const std::int64_t of_b = (plan.blocks_n + plan.panel_blocks_n - 1) / plan.panel_blocks_n;
    ASSERT_EQ(plan.shares_a ? of_a : of_b, panels);
    const Sides s = operands(c);
    const Attrs attrs{{"transpose_a", c.ta}, {"transpose_b", c.tb}};
    const auto expected = cpu_test::run("matmul", {s.a, s.b}, attrs, {.threads = apart});
    const auto y = cpu_test::run("matmul", {s.a, s.b}, attrs, {.threads = together});
    EXPECT_EQ(y[0].bytes, expected[0].bytes);
  }
}

// Parts of K of a deep operand, one after the other; results that are rounded, or added to, keep
// their sums between them, of all columns or some. What the threads leave is not what a panel
// before it left.
TEST(CpuMatmulTest, PanelsOfADeepOperandGiveTheSameBits) {
  struct Deep {
    Case product;
    bool is_cut;  // whether the other operand is cut as well
  };
  for (const auto& [c, is_cut] : {Deep{{1, 520, 1300, 4200, false, true}, false},
                                  Deep{{1, 1300, 520, 4200, true, false}, false},
                                  Deep{{1, 520, 1300, 4200, true, true, DType::kF16}, false},
                                  Deep{{1, 520, 1536, 8000, false, true, DType::kBF16}, false},
                                  Deep{{1, 512, 1536, 8000, false, true, DType::kBF16}, false},
                                  Deep{{1, 8200, 520, 4200, false, true, DType::kF16}, true}}) {
    SCOPED_TRACE(testing::Message() << c.m << 'x' << c.n << 'x' << c.k);
    const GemmPlan plan = plan_gemm(c.batch, c.m, c.n, c.k, c.dtype, c.dtype, 16);
    ASSERT_NE(plan.shares_a, plan.shares_b);
    ASSERT_LT(plan.panel_blocks_k, plan.blocks_k);
    const bool cuts_rows = plan.panel_blocks < plan.blocks_m;
    ASSERT_EQ(plan.shares_a ? plan.panel_blocks_n < plan.blocks_n : cuts_rows, is_cut);
    const Sides s = operands(c);
    const Attrs attrs{{"transpose_a", c.ta}, {"transpose_b", c.tb}};
    const Operand addend = cpu_test::dense(cpu_test::random_floats(c.dtype, {1, c.m, c.n}, 7));
    const auto alone = cpu_test::run("matmul", {s.a, s.b}, attrs, {.threads = 1});
    const auto added = cpu_test::run("matmul_add", {s.a, s.b, addend}, attrs, {.threads = 1});
    const cpu_test::RunOptions options{.threads = 16};
    EXPECT_EQ(cpu_test::run("matmul", {s.a, s.b}, attrs, options)[0].bytes, alone[0].bytes);
    EXPECT_EQ(cpu_test::run("matmul_add", {s.a, s.b, addend}, attrs, options)[0].bytes,
              added[0].bytes);
  }
}

// Many threads take the last blocks in parts of rows or of columns, some of them beyond the edge.
TEST(CpuMatmulTest, PartsOfTheLastBlocksGiveTheSameBits) {
  for (const Case& c : {Case{1, 301, 1100, 203, false, true}, Case{1, 1099, 300, 203, true, false},
                        Case{1, 110, 1363, 90, false, true, DType::kF16},
                        Case{1, 500, 530, 330, false, false, DType::kBF16},
                        Case{1, 1000, 330, 352, true, true, DType::kBF16},
                        Case{1, 256, 770, 8016, false, false, DType::kBF16}}) {
    SCOPED_TRACE(testing::Message() << c.m << 'x' << c.n << 'x' << c.k);
    const GemmPlan plan = plan_gemm(c.batch, c.m, c.n, c.k, c.dtype, c.dtype, 16);
    ASSERT_GT(plan.tail_blocks(plan.jobs()), 0);
    const Sides s = operands(c);
    const Attrs attrs{{"transpose_a", c.ta}, {"transpose_b", c.tb}};
    const Operand addend = cpu_test::dense(cpu_test::random_floats(c.dtype, {1, c.m, c.n}, 7));
    const Operand bias = cpu_test::dense(cpu_test::random_floats(c.dtype, {c.n}, 8));
    const Shape of_a = c.ta ? Shape{c.k, c.m} : Shape{c.m, c.k};
    const Shape of_b = c.tb ? Shape{c.n, c.k} : Shape{c.k, c.n};
    const std::vector<Operand> matrices{cpu_test::dense(cpu_test::random_floats(c.dtype, of_a, 9)),
                                        cpu_test::dense(cpu_test::random_floats(c.dtype, of_b, 10)),
                                        bias};
    const auto all = [&](int threads) {
      const cpu_test::RunOptions options{.threads = threads};
      return std::vector{cpu_test::run("matmul", {s.a, s.b}, attrs, options)[0].bytes,
                         cpu_test::run("matmul_add", {s.a, s.b, addend}, attrs, options)[0].bytes,
                         cpu_test::run("matmul_bias", matrices, attrs, options)[0].bytes};
    };
    const auto expected = all(1);
    for (const int threads : {4, 16}) EXPECT_EQ(all(threads), expected) << threads;
  }
}

TEST(CpuMatmulTest, BitsDoNotDependOnThreads) {
  for (const Case& c : {Case{1, 33, 40, 5000, false, true}, Case{1, 300, 500, 700, true, false},
                        Case{2, 8, 8, 9000}, Case{1, 1, 700, 900, false, true},
                        Case{1, 200, 130, 2100, false, true, DType::kBF16}}) {
    const Sides s = operands(c);
    const Attrs attrs{{"transpose_a", c.ta}, {"transpose_b", c.tb}};
    const auto expected = cpu_test::run("matmul", {s.a, s.b}, attrs, {.threads = 1});
    for (const int threads : {2, 3, 7, 16}) {
      const auto y = cpu_test::run("matmul", {s.a, s.b}, attrs, {.threads = threads});
      EXPECT_EQ(y[0].bytes, expected[0].bytes) << threads << " threads, k = " << c.k;
    }
  }
}

// Does as a profiler does to a host program that calls us: a handler on whatever stack runs.
std::atomic<int> interruptions{0};

class Timer {
 public:
  explicit Timer(std::chrono::microseconds period) {
    struct sigaction action {};
    action.sa_handler = [](int) { ++interruptions; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, &before_);
    const timeval every{0, period.count()};
    const itimerval timer{every, every};
    setitimer(ITIMER_PROF, &timer, nullptr);
  }
  ~Timer() {
    const itimerval none{};
    setitimer(ITIMER_PROF, &none, nullptr);
    sigaction(SIGPROF, &before_, nullptr);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  struct sigaction before_ {};
};

TEST(CpuMatmulTest, SignalsDuringAProductChangeNothing) {
  const Case c{.batch = 1, .m = 520, .n = 768, .k = 768, .tb = true};
  const Sides s = operands(c);
  const auto product = [&] { return cpu_test::run("matmul", {s.a, s.b}, {{"transpose_b", true}}); };
  const std::vector<double> quiet = cpu_test::values_of(product()[0]);
  const Timer timer{std::chrono::milliseconds(1)};
  interruptions = 0;
  while (interruptions < 100) ASSERT_EQ(cpu_test::values_of(product()[0]), quiet);
}

}  // namespace
}  // namespace tracestep

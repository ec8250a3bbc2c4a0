// Products of bfloat16 by tiles: every shape and orientation against the sum that the processor's
// manual describes, written out here once more, by tiles in plain code on any machine with AVX-512
// and by those of the processor (AMX) where it has them; and every other way beside them.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "backends/cpu/bf16_products.h"
#include "backends/cpu_support.h"
#include "planning/cpu_plans.h"

namespace tracestep {
namespace {

using cpu::Bf16Products;
using cpu::WithBf16Products;
using cpu_test::Operand;

struct Product {
  std::int64_t batch, m, n, k;
  bool ta = false, tb = false;
};

// Whether kernels of tiles run here, emulated or not.
bool has_kernels() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

bool has_pairs() {
#ifdef __x86_64__
  return has_kernels() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool has_tiles() {
  return has_kernels() && cpu::tile_support() == cpu::TileSupport::kGranted;
}

std::vector<Operand> operands(const Product& p) {
  const Shape a = p.ta ? Shape{p.batch, p.k, p.m} : Shape{p.batch, p.m, p.k};
  const Shape b = p.tb ? Shape{p.batch, p.n, p.k} : Shape{p.batch, p.k, p.n};
  return {cpu_test::dense(cpu_test::random_floats(DType::kBF16, a, 3)),
          cpu_test::dense(cpu_test::random_floats(DType::kBF16, b, 4))};
}

HostTensor multiply(const Product& p, const std::vector<Operand>& operands, int threads = 2) {
  return cpu_test::run("matmul", operands, {{"transpose_a", p.ta}, {"transpose_b", p.tb}},
                       {.threads = threads})[0];
}

// Even and odd k apart over 32 of K, their sums joined, and that added to what is there; parts of a
// long K are summed in their order at the end.
float sum_of_tiles(const GemmPlan& plan, const std::function<float(std::int64_t)>& a,
                   const std::function<float(std::int64_t)>& b) {
  float result = 0;
  for (std::int64_t split = 0; split < plan.splits; ++split) {
    const auto begin = [&](std::int64_t part) {
      return std::min(plan.k, part * plan.blocks_k / plan.splits * plan.block_k);
    };
    float of_part = 0;
    for (std::int64_t first = begin(split); first < begin(split + 1); first += 32) {
      float even = 0, odd = 0;
      for (std::int64_t i = first; i < std::min(plan.k, first + 32); ++i) {
        float& sum = i % 2 == 0 ? even : odd;
        sum = std::fma(a(i), b(i), sum);
      }
      of_part += even + odd;
    }
    result = split == 0 ? of_part : result + of_part;
  }
  return result;
}

void expect_sums_of_tiles(const Product& p) {
  SCOPED_TRACE(testing::Message() << p.batch << " of " << p.m << 'x' << p.n << 'x' << p.k << ' '
                                  << p.ta << p.tb);
  const std::vector<Operand> sides = operands(p);
  const HostTensor y = multiply(p, sides);
  const GemmPlan plan = plan_gemm(p.batch, p.m, p.n, p.k, DType::kBF16, DType::kBF16, 2);
  const BF16* a = sides[0].storage.as<BF16>().data();
  const BF16* b = sides[1].storage.as<BF16>().data();
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        const auto a_at = [&](std::int64_t k) {
          return to_float(a[batch * p.m * p.k + (p.ta ? k * p.m + i : i * p.k + k)]);
        };
        const auto b_at = [&](std::int64_t k) {
          return to_float(b[batch * p.n * p.k + (p.tb ? j * p.k + k : k * p.n + j)]);
        };
        const BF16 expected = to_bf16(sum_of_tiles(plan, a_at, b_at));
        const BF16 got = y.as<BF16>().data()[(batch * p.m + i) * p.n + j];
        ASSERT_EQ(got.bits, expected.bits) << batch << ',' << i << ',' << j;
      }
    }
  }
}

// Whole tiles, one more and one less of them, a single row beside others, odd K, two blocks of K.
// Rows of 16 are read in place where K is whole, and but for the last block of K where it is not.
// A product of 600 columns finishes 256 of a thread's half before it begins the others.
constexpr std::int64_t kShapes[][4] = {
    {1, 32, 32, 32},  {1, 2, 2, 1},      {1, 16, 16, 2},   {1, 17, 33, 31},  {1, 31, 15, 33},
    {1, 33, 32, 64},  {1, 48, 16, 65},   {1, 64, 48, 96},  {1, 65, 129, 63}, {2, 40, 50, 515},
    {1, 7, 70, 1024}, {3, 20, 30, 40},   {1, 130, 3, 128}, {1, 48, 80, 544}, {1, 80, 34, 1040},
    {2, 32, 40, 96},  {1, 144, 64, 528}, {1, 40, 610, 64}, {1, 48, 600, 992}};

void expect_all_shapes() {
  for (const auto& [batch, m, n, k] : kShapes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) expect_sums_of_tiles({batch, m, n, k, ta, tb});
    }
  }
}

TEST(TileProductsTest, EmulatedTilesSumAsTheManualSays) {
  if (!has_kernels()) GTEST_SKIP() << "the kernels of tiles are among those for AVX-512";
  const WithBf16Products way(Bf16Products::kEmulatedTiles);
  expect_all_shapes();
}

TEST(TileProductsTest, TilesOfTheProcessorSumAsTheManualSays) {
  if (!has_tiles()) GTEST_SKIP() << "this processor has no AMX, or the system does not permit it";
  const WithBf16Products way(Bf16Products::kTiles);
  expect_all_shapes();
}

TEST(TileProductsTest, TilesOfTheProcessorGiveTheBitsOfEmulatedOnes) {
  if (!has_tiles()) GTEST_SKIP() << "this processor has no AMX, or the system does not permit it";
  for (const Product& p :
       {Product{1, 300, 200, 777, false, true}, Product{1, 129, 300, 520, true, false},
        Product{2, 64, 64, 96}, Product{1, 60, 90, 3000, false, true}}) {
    const std::vector<Operand> sides = operands(p);
    const auto in_way = [&](Bf16Products way_of_products) {
      const WithBf16Products way(way_of_products);
      return multiply(p, sides).bytes;
    };
    EXPECT_EQ(in_way(Bf16Products::kTiles), in_way(Bf16Products::kEmulatedTiles)) << p.k;
  }
}

std::vector<Bf16Products> ways_of_this_machine() {
  std::vector<Bf16Products> ways{Bf16Products::kWidened};
  if (has_pairs()) ways.push_back(Bf16Products::kPairs);
  if (has_kernels()) ways.push_back(Bf16Products::kEmulatedTiles);
  if (has_tiles()) ways.push_back(Bf16Products::kTiles);
  return ways;
}

// |error| <= 16·2^-24·Σ|terms| and 1.02 roundings to bfloat16.
TEST(TileProductsTest, EveryWayIsAsAccurate) {
  const Product p{1, 67, 90, 700, true, false};
  const std::vector<Operand> sides = operands(p);
  const std::vector<double> a = cpu_test::values_of(sides[0].storage);
  const std::vector<double> b = cpu_test::values_of(sides[1].storage);
  for (const Bf16Products way_of_products : ways_of_this_machine()) {
    const WithBf16Products way(way_of_products);
    const std::vector<double> y = cpu_test::values_of(multiply(p, sides));
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0, terms = 0;
        for (std::int64_t k = 0; k < p.k; ++k) {
          const double term =
              a[static_cast<std::size_t>(k * p.m + i)] * b[static_cast<std::size_t>(k * p.n + j)];
          sum += term;
          terms += std::abs(term);
        }
        const double bound = 0x1p-20 * terms + 1.02 * 0x1p-8 * std::abs(sum);
        ASSERT_LE(std::abs(y[static_cast<std::size_t>(i * p.n + j)] - sum), bound)
            << static_cast<int>(way_of_products) << ": " << i << ',' << j;
      }
    }
  }
}

// Rows of a that are packed for all threads (on eight), several blocks of K, parts of K that are
// summed at the end.
TEST(TileProductsTest, BitsDoNotDependOnThreadsInAnyWay) {
  for (const Bf16Products way_of_products : ways_of_this_machine()) {
    const WithBf16Products way(way_of_products);
    for (const Product& p :
         {Product{1, 130, 161, 693, false, true}, Product{1, 40, 33, 2100, true, false},
          Product{1, 128, 161, 704, false, true}, Product{1, 160, 96, 1040, false, false},
          Product{1, 304, 470, 90, false, true}, Product{1, 470, 290, 64, true, false},
          Product{1, 32, 530, 960, false, true}}) {
      const std::vector<Operand> sides = operands(p);
      const HostTensor expected = multiply(p, sides, 1);
      for (int threads = 2; threads <= 16; ++threads) {
        EXPECT_EQ(multiply(p, sides, threads).bytes, expected.bytes)
            << static_cast<int>(way_of_products) << ", " << threads << " threads, k = " << p.k;
      }
    }
  }
}

// A plan has panels for what may have to be packed; of rows that are read in place nothing is.
TEST(TileProductsTest, PanelsGrowWhereRowsAreReadInPlace) {
  if (!has_kernels()) GTEST_SKIP() << "the kernels of tiles are among those for AVX-512";
  const Product p{1, 96, 192, 16384, false, true};
  const GemmPlan plan = plan_gemm(p.batch, p.m, p.n, p.k, DType::kBF16, DType::kBF16, 4);
  ASSERT_TRUE(plan.shares_a);
  ASSERT_LT(plan.panel_blocks, plan.blocks_m);
  const std::vector<Operand> sides = operands(p);
  const WithBf16Products way(Bf16Products::kEmulatedTiles);
  EXPECT_EQ(multiply(p, sides, 4).bytes, multiply(p, sides, 1).bytes);
}

// The processor's manual: operands and results below the least normal number are zero.
TEST(TileProductsTest, WhatIsSubnormalCountsAsZero) {
  std::vector<Bf16Products> ways;
  if (has_kernels()) ways.push_back(Bf16Products::kEmulatedTiles);
  if (has_tiles()) ways.push_back(Bf16Products::kTiles);
  if (ways.empty()) GTEST_SKIP() << "the kernels of tiles are among those for AVX-512";
  HostTensor a = HostTensor::zeros(DType::kBF16, {2, 4}),
             b = HostTensor::zeros(DType::kBF16, {4, 2});
  a.as<BF16>()[0].bits = 1;             // subnormal
  b.as<BF16>()[0] = to_bf16(0x1p100f);  // what it is multiplied by
  a.as<BF16>()[4] = to_bf16(0x1p-70f);  // a product below the least number
  b.as<BF16>()[1] = to_bf16(0x1p-70f);
  a.as<BF16>()[5] = to_bf16(3.0f);  // and one that counts
  b.as<BF16>()[2] = to_bf16(0.5f);
  for (const Bf16Products way_of_products : ways) {
    const WithBf16Products way(way_of_products);
    const auto y =
        cpu_test::values_of(cpu_test::run("matmul", {cpu_test::dense(a), cpu_test::dense(b)})[0]);
    EXPECT_EQ(y[0], 0.0);
    EXPECT_EQ(y[2], 0x1p30 + 1.5 - 1.5);
    EXPECT_EQ(y[3], 0.0);
  }
}

}  // namespace
}  // namespace tracestep

#include "base/random.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

// The published known answers of Philox4x32-10.
TEST(RandomTest, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Uint32x4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (Uint32x4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Uint32x4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, AValueDependsOnSeedNameAndIndexOnly) {
  const CounterRng a(1, "w"), again(1, "w"), seed(2, "w"), name(1, "v");
  EXPECT_EQ(a.at(7), again.at(7));
  EXPECT_NE(a.at(7), a.at(8));
  EXPECT_NE(a.at(7), seed.at(7));
  EXPECT_NE(a.at(7), name.at(7));
  EXPECT_NE(a.at(7), a.at(7 + (1ull << 32)));
  EXPECT_NE(CounterRng(1ull << 32, "w").at(0), CounterRng(0, "w").at(0));
}

// Committed values: a change of any of them would change every initial weight.
TEST(RandomTest, StreamsAreStableAcrossVersions) {
  const CounterRng rng(42, "lm_head.weight");
  EXPECT_DOUBLE_EQ(rng.uniform(0), 0.13333344759974952);
  EXPECT_DOUBLE_EQ(rng.normal(1), 0.040618908458239671);
  EXPECT_DOUBLE_EQ(rng.truncated_normal(2, 3.0), 0.20067753462833243);
}

TEST(RandomTest, UniformsFillTheirRangeEvenly) {
  const CounterRng rng(3, "u");
  const int n = 200000, bins = 64;
  std::vector<int> count(bins);
  for (int i = 0; i < n; ++i) {
    const double u = rng.uniform(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(u >= 0 && u < 1);
    ++count[static_cast<std::size_t>(u * bins)];
  }
  double chi2 = 0;
  for (int c : count) chi2 += (c - n / 64.0) * (c - n / 64.0) / (n / 64.0);
  EXPECT_LT(chi2, 63 + 4 * std::sqrt(2 * 63.0));
}

TEST(RandomTest, TheQuantileInvertsTheDistributionFunction) {
  EXPECT_EQ(normal_quantile(0), 0);
  for (double z = 0.01; z < 5; z += 0.01) {
    const double q = 0.5 * std::erf(z / std::sqrt(2.0));
    // A rounding of q moves z by its share of the density there.
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    ASSERT_NEAR(normal_quantile(q), z, 4e-15 + 2e-16 / density) << z;
    ASSERT_EQ(normal_quantile(-q), -normal_quantile(q));
  }
  // The far branch, at the smallest tail a draw can have: 2^-53.
  const double z = normal_quantile(0.5 - 0x1p-53);
  EXPECT_NEAR(0.5 * std::erfc(z / std::sqrt(2.0)), 0x1p-53, 0x1p-53 * 1e-13);
}

TEST(RandomTest, NormalsHaveTheRightMoments) {
  const CounterRng rng(5, "n");
  const int n = 400000;
  double s1 = 0, s2 = 0, s3 = 0, s4 = 0;
  for (int i = 0; i < n; ++i) {
    const double z = rng.normal(static_cast<std::uint64_t>(i));
    s1 += z, s2 += z * z, s3 += z * z * z, s4 += z * z * z * z;
  }
  EXPECT_NEAR(s1 / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(s2 / n, 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(s3 / n, 0, 4 * std::sqrt(15.0 / n));
  EXPECT_NEAR(s4 / n, 3, 4 * std::sqrt(96.0 / n));
}

TEST(RandomTest, TruncatedNormalsStayWithinTheirLimit) {
  const CounterRng rng(5, "t");
  const TruncatedNormal three(3.0);
  const int n = 400000;
  double s2 = 0, largest = 0;
  for (int i = 0; i < n; ++i) {
    const double z = three(rng, static_cast<std::uint64_t>(i));
    ASSERT_LE(std::abs(z), 3.0);
    s2 += z * z, largest = std::max(largest, std::abs(z));
  }
  // Variance of a standard normal cut at three sigmas.
  EXPECT_NEAR(s2 / n, 0.97334, 0.006);
  EXPECT_GT(largest, 2.99);
  EXPECT_EQ(rng.truncated_normal(9, 3.0), three(rng, 9));
  EXPECT_LE(std::abs(rng.truncated_normal(9, 1e-3)), 1e-3);
}

TEST(RandomTest, BelowStaysBelow) {
  const CounterRng rng(1, "b");
  std::vector<int> count(7);
  for (std::uint64_t i = 0; i < 70000; ++i) ++count[rng.below(i, 7)];
  for (int c : count) EXPECT_NEAR(c, 10000, 400);
  EXPECT_EQ(rng.below(3, 1), 0u);
}

}  // namespace
}  // namespace tracestep

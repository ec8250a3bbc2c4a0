#include "lab/measure/statistics.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tracestep {
namespace {

const std::vector<double> kFive = {2, 9, 4, 5, 5};

TEST(StatisticsTest, MomentsSayWhichDeviationTheyAre) {
  EXPECT_DOUBLE_EQ(mean_of(kFive), 5);
  EXPECT_DOUBLE_EQ(sample_std_of(kFive), std::sqrt(26.0 / 4));
  EXPECT_DOUBLE_EQ(population_std_of(kFive), std::sqrt(26.0 / 5));
  EXPECT_TRUE(std::isnan(sample_std_of(std::vector<double>{3})));
}

TEST(StatisticsTest, QuantilesInterpolateBetweenOrderStatistics) {
  EXPECT_EQ(median_of(kFive), 5);
  EXPECT_EQ(median_of(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(quantile_of(kFive, 0.95), 5 + 0.8 * 4);
  EXPECT_EQ(quantile_of(kFive, 0), 2);
  EXPECT_EQ(quantile_of(kFive, 1), 9);
}

TEST(StatisticsTest, AnEmptyListHasNoStatistics) {
  const std::vector<double> none;
  const Summary s = summarize(none);
  EXPECT_EQ(s.count, 0);
  for (double x : {s.mean, s.sample_std, s.median, s.min, s.max, s.p95}) EXPECT_TRUE(std::isnan(x));
  EXPECT_EQ(mann_whitney_p(none, kFive), 1);
  EXPECT_EQ(median_interval(none).coverage, 0);
}

TEST(StatisticsTest, TheMedianIntervalTakesTheTabulatedOrderStatistics) {
  std::vector<double> samples(10);
  std::iota(samples.begin(), samples.end(), 1.0);
  const Interval ten = median_interval(samples);  // 2nd and 9th: coverage 1 - 22/1024
  EXPECT_EQ(ten.low, 2);
  EXPECT_EQ(ten.high, 9);
  EXPECT_NEAR(ten.coverage, 1 - 22.0 / 1024, 1e-12);
  samples.resize(100);
  std::iota(samples.begin(), samples.end(), 1.0);
  EXPECT_EQ(median_interval(samples).low, 40);  // 40th and 61st
  EXPECT_EQ(median_interval(samples).high, 61);
  samples.resize(5000);
  std::iota(samples.begin(), samples.end(), 1.0);
  EXPECT_NEAR(median_interval(samples).low, 2500 - 1.96 * std::sqrt(5000.0) / 2, 2);
}

TEST(StatisticsTest, TooFewSamplesSaySoInTheCoverage) {
  const Interval five = median_interval(kFive);
  EXPECT_EQ(five.low, 2);
  EXPECT_EQ(five.high, 9);
  EXPECT_DOUBLE_EQ(five.coverage, 1 - 2.0 / 32);
  EXPECT_EQ(median_interval(std::vector<double>{3}).coverage, 0);
}

TEST(StatisticsTest, TheExactTestMatchesTheTables) {
  // Fully separated lists of 3 and 3, 4 and 4, 5 and 5: 2 / binomial(2n, n).
  for (const auto& [n, p] : {std::pair{3, 2.0 / 20}, {4, 2.0 / 70}, {5, 2.0 / 252}}) {
    std::vector<double> a(static_cast<std::size_t>(n)), b(a);
    std::iota(a.begin(), a.end(), 0.0);
    std::iota(b.begin(), b.end(), 100.0);
    EXPECT_NEAR(mann_whitney_p(a, b), p, 1e-12);
    EXPECT_NEAR(mann_whitney_p(b, a), p, 1e-12);
  }
  // U = 7 of 5 x 6: 2 P(U <= 7) = 2 * 41 / 462.
  const std::vector<double> a = {1, 2, 3, 7, 9}, b = {4, 5, 6, 8, 10, 11};
  EXPECT_NEAR(mann_whitney_p(a, b), 2 * 41.0 / 462, 1e-12);
}

TEST(StatisticsTest, TiesUseTheCorrectedNormalApproximation) {
  const std::vector<double> same(8, 2.0);
  EXPECT_EQ(mann_whitney_p(same, same), 1);
  std::vector<double> a(20), b(20);
  for (std::size_t i = 0; i < 20; ++i) {
    a[i] = static_cast<double>(i / 2);
    b[i] = static_cast<double>(i / 2) + 6;
  }
  EXPECT_LT(mann_whitney_p(a, b), 1e-4);
  EXPECT_DOUBLE_EQ(mann_whitney_p(a, b), mann_whitney_p(b, a));
  EXPECT_GT(mann_whitney_p(a, a), 0.9);
}

TEST(StatisticsTest, TheExactTestIsThatOfSciPy) {
  // scipy.stats.mannwhitneyu(a, b, method="exact"), SciPy 1.17.
  const std::vector<double> a = {10.12, 10.31, 9.98, 10.05, 10.22, 10.41, 10.17, 9.91};
  const std::vector<double> b = {10.45, 10.62, 10.38, 10.51, 10.29, 10.71, 10.57, 10.33};
  EXPECT_NEAR(mann_whitney_p(a, b), 0.0018648018648018648, 1e-15);
}

// Over all signs of ranks with ties: 1, 2.5, 2.5, 4, 5, 7, 7, 7, 9, 10.
TEST(StatisticsTest, TheSignedRankTestIsTheShareOfAllSigns) {
  const std::vector<double> d = {-0.5, 1.0, 1.0, 2.0, -3.0, 4.0, 4.0, 4.0, 5.0, 6.0};
  const std::vector<double> ranks = {1, 2.5, 2.5, 4, 5, 7, 7, 7, 9, 10};
  const double seen = 1 + 5;  // of the negative ones
  int as_far = 0;
  for (unsigned signs = 0; signs < 1024; ++signs) {
    double below = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) below += (signs >> i & 1) != 0 ? ranks[i] : 0;
    as_far += std::min(below, 55 - below) <= seen ? 1 : 0;
  }
  EXPECT_NEAR(wilcoxon_p(d), as_far / 1024.0, 1e-15);
  std::vector<double> mirrored;
  for (double x : d) mirrored.push_back(-x);
  EXPECT_EQ(wilcoxon_p(mirrored), wilcoxon_p(d));
}

TEST(StatisticsTest, TheSignedRankTestMatchesTheTables) {
  // All of one sign: 2 / 2^n. A difference of zero is left out.
  EXPECT_NEAR(wilcoxon_p(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}), 2.0 / 512, 1e-15);
  EXPECT_NEAR(wilcoxon_p(std::vector<double>{1, 2, 3, 0, 4, 5}), 2.0 / 32, 1e-15);
  EXPECT_EQ(wilcoxon_p(std::vector<double>{0, 0}), 1);
  // Hollander and Wolfe's depression scale, as in R's wilcox.test: V = 40, p = 0.03906.
  const std::vector<double> x = {1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const std::vector<double> y = {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29};
  std::vector<double> d;
  for (std::size_t i = 0; i < x.size(); ++i) d.push_back(x[i] - y[i]);
  EXPECT_NEAR(wilcoxon_p(d), 0.0390625, 1e-12);
}

TEST(StatisticsTest, ManySignedRanksAreAsGoodAsExact) {
  constexpr std::size_t kCount = 201;  // one more than is counted exactly
  constexpr int kDraws = 20000;
  std::vector<double> d;
  for (std::size_t i = 1; i <= kCount; ++i) {
    d.push_back(i % 20 < 11 ? static_cast<double>(i) : -static_cast<double>(i));
  }
  const auto distance = [](std::span<const double> signed_ranks) {
    return std::abs(std::accumulate(signed_ranks.begin(), signed_ranks.end(), 0.0));
  };
  const CounterRng rng(1, "signs");
  std::vector<double> drawn(kCount);
  int as_far = 0;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const bool is_positive = rng.below(draw * kCount + i, 2) == 1;
      drawn[i] = is_positive ? static_cast<double>(i + 1) : -static_cast<double>(i + 1);
    }
    as_far += distance(drawn) >= distance(d) ? 1 : 0;
  }
  const double share = static_cast<double>(as_far) / kDraws;
  EXPECT_GT(share, 0.1);
  EXPECT_NEAR(wilcoxon_p(d), share, 4 * std::sqrt(share * (1 - share) / kDraws));
}

}  // namespace
}  // namespace tracestep

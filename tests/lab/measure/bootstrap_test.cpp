#include "lab/measure/bootstrap.h"

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tracestep {
namespace {

// Skewed as timings are: exp of a normal, with the median `scale`.
std::vector<double> drawn(std::uint64_t seed, std::size_t count, double scale) {
  const CounterRng rng(seed, "samples");
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(scale * std::exp(0.1 * rng.normal(i)));
  return out;
}

// The median of a list that is drawn as a whole: what MedianResampler does in one step.
double drawn_median(const std::vector<double>& samples, const CounterRng& rng,
                    std::uint64_t& index) {
  std::vector<double> list;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    list.push_back(samples[rng.below(index++, samples.size())]);
  }
  return median_of(list);
}

TEST(BootstrapTest, MediansAreDistributedAsThoseOfListsDrawnWhole) {
  constexpr int kDraws = 100000;
  for (const std::size_t n : {1u, 2u, 3u, 6u, 7u, 12u, 33u, 40u}) {
    std::vector<double> samples;  // powers: every pair of middle samples has a median of its own
    for (std::size_t i = 0; i < n; ++i) samples.push_back(std::pow(1.5, static_cast<double>(i)));
    MedianResampler resampler(samples, CounterRng(n, "places"));
    const CounterRng rng(n, "whole");
    std::uint64_t index = 0;
    std::map<double, std::array<int, 2>> counts;
    for (int i = 0; i < kDraws; ++i) {
      ++counts[resampler.next()][0];
      ++counts[drawn_median(samples, rng, index)][1];
    }
    // The chi-square statistic of two samples; rare medians are counted together.
    double statistic = 0, rare[2] = {0, 0};
    int cells = 0;
    const auto add = [&](double x, double y) {
      statistic += (x - y) * (x - y) / (x + y);
      ++cells;
    };
    for (const auto& [median, seen] : counts) {
      if (seen[0] + seen[1] >= 20) {
        add(seen[0], seen[1]);
      } else {
        rare[0] += seen[0];
        rare[1] += seen[1];
      }
    }
    if (rare[0] + rare[1] > 0) add(rare[0], rare[1]);
    // Mean and deviation of a chi-square are its degrees of freedom and the root of twice them.
    const double freedom = cells - 1;
    EXPECT_LE(statistic, freedom + 4 * std::sqrt(2 * freedom) + 1e-9) << n;
  }
}

TEST(BootstrapTest, AMillionSamplesTakeNoLongerThanAFew) {
  // Drawn whole, this would be eight thousand million numbers: minutes. No clock is looked at; the
  // test's own limit of time would end it.
  const auto a = drawn(1, 1000000, 10), b = drawn(2, 1000000, 11);
  const Interval interval = ratio_interval(a, b);
  EXPECT_LT(interval.low, 1.1);
  EXPECT_GT(interval.high, 1.1);
  // The deviation of a median of n: 1.2533 sigma / sqrt(n), here twice, of 10 % each.
  const double expected = 2 * 1.96 * 1.2533 * 0.1 * std::sqrt(2.0) * 1.1 / 1000;
  EXPECT_NEAR(interval.high - interval.low, expected, 0.1 * expected);
}

TEST(BootstrapTest, TheSameListsGiveTheSameInterval) {
  const auto a = drawn(1, 12, 10), b = drawn(2, 15, 11);
  const Interval first = ratio_interval(a, b), second = ratio_interval(a, b);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
  EXPECT_LE(first.low, median_of(b) / median_of(a));
  EXPECT_GE(first.high, median_of(b) / median_of(a));
}

TEST(BootstrapTest, TheIntervalFollowsTheScale) {
  const auto a = drawn(1, 12, 10), b = drawn(2, 12, 10);
  std::vector<double> doubled;
  for (double x : b) doubled.push_back(2 * x);
  EXPECT_DOUBLE_EQ(ratio_interval(a, doubled).low, 2 * ratio_interval(a, b).low);
  EXPECT_DOUBLE_EQ(ratio_interval(a, doubled).high, 2 * ratio_interval(a, b).high);
}

TEST(BootstrapTest, ConstantListsLeaveNoDoubt) {
  const Interval sure = ratio_interval(std::vector<double>(6, 4.0), std::vector<double>(8, 5.0));
  EXPECT_EQ(sure.low, 1.25);
  EXPECT_EQ(sure.high, 1.25);
}

TEST(BootstrapTest, AHandfulOfSamplesHasNoInterval) {
  const Interval none = ratio_interval(std::vector<double>(5, 4.0), std::vector<double>(8, 5.0));
  EXPECT_TRUE(std::isnan(none.low));
  EXPECT_EQ(none.coverage, 0);
}

TEST(BootstrapTest, TheTrueRatioIsInsideAboutAsOftenAsPromised) {
  constexpr int kTrials = 300;
  int inside = 0;
  for (std::uint64_t i = 0; i < kTrials; ++i) {
    const auto a = drawn(2 * i, 20, 10), b = drawn(2 * i + 1, 20, 12);
    const Interval interval = ratio_interval(a, b, 0.95, i, 500);
    inside += interval.low <= 1.2 && 1.2 <= interval.high ? 1 : 0;
  }
  // 95 % of 300 is 285; the percentile method at n = 20 is known to be a few percent off.
  EXPECT_GE(inside, 270);
  EXPECT_LE(inside, 299);
}

// --- processes ----------------------------------------------------------------------------------

TEST(ProcessBootstrapTest, ConstantProcessesFollowTheClosedForm) {
  // With five constant processes a resample's median is at most the j-th when at least three of
  // five draws are: P(Bin(5, j/5) >= 3) is 0.058 for the first, 0.317 for the first two, 0.683 for
  // three.
  const ProcessSamples one = {{1.0}}, five = {{10.0}, {11.0}, {12.0}, {13.0}, {14.0}};
  const auto low = [&](double confidence) {
    return process_ratio_interval(one, five, confidence, {}, 0, 50000).low;
  };
  EXPECT_EQ(low(1 - 2 * 0.055), 10);
  EXPECT_EQ(low(1 - 2 * 0.061), 11);
  EXPECT_EQ(low(1 - 2 * 0.310), 11);
  EXPECT_EQ(low(1 - 2 * 0.325), 12);
}

const ProcessSamples kA = {{10.1, 10.3, 10.2, 10.4, 10.2}, {10.0, 10.1, 9.9, 10.0, 10.2},
                           {10.6, 10.5, 10.4, 10.7, 10.5}, {9.8, 9.9, 10.0, 9.7, 9.9},
                           {10.3, 10.2, 10.1, 10.5, 10.4}, {10.0, 10.4, 10.3, 10.2, 10.1}};
const ProcessSamples kB = {{10.5, 10.6, 10.4, 10.5, 10.8},
                           {10.7, 10.9, 10.8, 10.6, 11.0},
                           {10.2, 10.3, 10.4, 10.1, 10.5},
                           {10.9, 11.1, 11.0, 10.8, 10.9},
                           {10.4, 10.5, 10.3, 10.6, 10.2}};

// Quantiles of two million resamples drawn whole by NumPy 2.4: processes, then samples in each, the
// median of medians of b over that of a.
TEST(ProcessBootstrapTest, BothLevelsAreThoseOfNumPy) {
  const Interval wide = process_ratio_interval(kA, kB, 0.99, {}, 0, 50000);
  EXPECT_NEAR(wide.low, 0.99057, 0.002);
  EXPECT_NEAR(wide.high, 1.09000, 0.002);
  const Interval narrow = process_ratio_interval(kA, kB, 0.95, {}, 0, 50000);
  EXPECT_NEAR(narrow.low, 1.00478, 0.002);
  EXPECT_NEAR(narrow.high, 1.08000, 0.002);
}

// Each side is one process, with factors exp(0.02 z), and with five degrees of freedom exp(0.02 t).
TEST(ProcessBootstrapTest, KnownNoiseIsThatOfNumPy) {
  const ProcessSamples a = {kA[0]}, b = {kB[0]};
  const Interval exact = process_ratio_interval(a, b, 0.95, ProcessNoise{0.02, 0}, 0, 50000);
  EXPECT_NEAR(exact.low, 0.97116, 0.002);
  EXPECT_NEAR(exact.high, 1.09296, 0.002);
  const Interval estimated = process_ratio_interval(a, b, 0.95, ProcessNoise{0.02, 5}, 0, 50000);
  EXPECT_NEAR(estimated.low, 0.95541, 0.003);
  EXPECT_NEAR(estimated.high, 1.11077, 0.003);
}

TEST(ProcessBootstrapTest, WithoutSamplesThereIsNoInterval) {
  for (const ProcessSamples& none :
       {ProcessSamples{}, ProcessSamples{{}}, ProcessSamples{{1.0}, {}}, ProcessSamples{{0.0}}}) {
    EXPECT_EQ(process_ratio_interval(none, kB, 0.99).coverage, 0);
    EXPECT_EQ(process_ratio_interval(kA, none, 0.99).coverage, 0);
  }
}

TEST(PairBootstrapTest, ConstantPairsFollowTheClosedForm) {
  // The medians of five drawn ratios, as for constant processes above.
  const ProcessSamples a = {{1.0}, {2.0}, {3.0}, {4.0}, {5.0}},
                       b = {{10.0}, {22.0}, {36.0}, {52.0}, {70.0}};  // 10 to 14 times a
  const auto low = [&](double confidence) {
    return pair_ratio_interval(a, b, confidence, 0, 50000).low;
  };
  EXPECT_EQ(low(1 - 2 * 0.055), 10);
  EXPECT_EQ(low(1 - 2 * 0.061), 11);
  EXPECT_EQ(low(1 - 2 * 0.310), 11);
  EXPECT_EQ(low(1 - 2 * 0.325), 12);
}

TEST(PairBootstrapTest, WhatSlowsBothOfAPairDownCancels) {
  ProcessSamples a(kA.begin(), kA.begin() + 5), b = kB;
  const Interval quiet = pair_ratio_interval(a, b, 0.99);
  double factor = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    factor *= 2;
    for (ProcessSamples* side : {&a, &b}) {
      for (double& ms : (*side)[i]) ms *= factor;
    }
  }
  const Interval disturbed = pair_ratio_interval(a, b, 0.99);
  EXPECT_EQ(disturbed.low, quiet.low);
  EXPECT_EQ(disturbed.high, quiet.high);
  EXPECT_EQ(pair_ratio_interval(ProcessSamples{{0.0}}, ProcessSamples{{1.0}}, 0.99).coverage, 0);
}

}  // namespace
}  // namespace tracestep

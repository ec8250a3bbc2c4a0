#include "lab/measure/bootstrap.h"

#include <cmath>
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

}  // namespace
}  // namespace tracestep

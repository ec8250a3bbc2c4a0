#include "lab/measure/comparison.h"

#include <cmath>

#include <gtest/gtest.h>

#include "lab/compare/interleaved.h"
#include "lab/measure/sound_row.h"

namespace tracestep {
namespace {

using testing::around;

TEST(ComparisonTest, SamplesOfOneProcessHaveFourVerdicts) {
  const auto change = [](const std::vector<double>& a, const std::vector<double>& b) {
    return compare_samples(a, b, 0.02).change;
  };
  EXPECT_EQ(change(around(100), around(100.1)), Change::kSame);
  EXPECT_EQ(change(around(100), around(80)), Change::kFaster);
  EXPECT_EQ(change(around(100), around(125)), Change::kSlower);
  EXPECT_EQ(change(around(100, 3.0), around(108, 3.0)), Change::kUnclear);
  // Clearly apart, but three samples cannot show it: the best p is 2/20.
  const std::vector<double> few = {100, 101, 102}, twice = {200, 201, 202};
  EXPECT_EQ(change(few, twice), Change::kUnclear);
  EXPECT_NEAR(compare_samples(few, twice, 0.02).p, 0.1, 1e-12);
}

TEST(ComparisonTest, WhatIsApartWithinTheMarginIsSlightlySo) {
  const auto words = [](double b) {
    return fine_words_of(compare_samples(around(100), around(b), 0.02));
  };
  EXPECT_EQ(words(100.02), "same");
  EXPECT_EQ(words(101.1), "slightly slower");
  EXPECT_EQ(words(99.0), "slightly faster");
  EXPECT_EQ(words(110), "slower");
  EXPECT_EQ(words_of(compare_samples(around(100), around(99), 0.02)), "same");
  EXPECT_EQ(fine_words_of(compare_samples({}, around(99), 0.02)), "too few samples");
}

TEST(ComparisonTest, TheRatioIsThatOfTheMedians) {
  const Comparison c = compare_samples(around(100), around(125), 0.02);
  EXPECT_DOUBLE_EQ(c.ratio, 1.25);
  EXPECT_GT(c.low, 1.24);
  EXPECT_LT(c.high, 1.26);
  // Nine and nine, fully apart: 2 / binomial(18, 9).
  EXPECT_NEAR(c.p, 2.0 / 48620, 1e-12);
}

TEST(ComparisonTest, SixProcessesOnEachSideAreTheLeast) {
  EXPECT_TRUE(can_tell(6, 6));    // 2/924
  EXPECT_FALSE(can_tell(5, 5));   // 2/252
  EXPECT_TRUE(can_tell(5, 6));    // 2/462
  EXPECT_FALSE(can_tell(4, 7));   // 2/330
  EXPECT_TRUE(can_tell(4, 8));    // 2/495
  EXPECT_FALSE(can_tell(2, 26));  // 2/378
  EXPECT_FALSE(can_tell(1, 398));
  EXPECT_FALSE(can_tell(0, 0));
}

// Processes of one build: each has a shift of its own, and its samples vary around it.
ProcessSamples drawn(std::uint64_t seed, int processes, double center, double between,
                     double within) {
  const CounterRng rng(seed, "comparison");
  ProcessSamples out;
  std::uint64_t index = 0;
  for (int i = 0; i < processes; ++i) {
    const double shift = center * (1 + between * rng.normal(index++));
    std::vector<double>& samples = out.emplace_back();
    for (int j = 0; j < 15; ++j) samples.push_back(shift * (1 + within * rng.normal(index++)));
  }
  return out;
}

std::vector<double> joined(const ProcessSamples& processes) {
  std::vector<double> out;
  for (const auto& samples : processes) out.insert(out.end(), samples.begin(), samples.end());
  return out;
}

// How many of so many comparisons come out faster or slower.
int false_alarms(int processes, double between) {
  int out = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Comparison c = compare_processes(drawn(2 * i, processes, 100, between, 0.005),
                                           drawn(2 * i + 1, processes, 100, between, 0.005), 0.02);
    out += c.change == Change::kFaster || c.change == Change::kSlower ? 1 : 0;
  }
  return out;
}

TEST(ComparisonTest, ShiftsBetweenProcessesAreNoDifferenceOfBuilds) {
  // More than three in a hundred are too many for an error rate of 0.5 % (p < 0.2 %).
  EXPECT_LE(false_alarms(6, 0.01), 3);
  EXPECT_LE(false_alarms(6, 0.05), 3);
  // Samples taken for independent see a difference nearly every time.
  int naive = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Comparison c = compare_samples(joined(drawn(2 * i, 1, 100, 0.01, 0.001)),
                                         joined(drawn(2 * i + 1, 1, 100, 0.01, 0.001)), 0.0001);
    naive += c.change == Change::kFaster || c.change == Change::kSlower ? 1 : 0;
  }
  EXPECT_GT(naive, 40);
}

TEST(ComparisonTest, ThreePercentAreFoundBesideOnePercentBetweenProcesses) {
  int found = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Comparison c = compare_processes(drawn(2 * i, 10, 100, 0.01, 0.005),
                                           drawn(2 * i + 1, 10, 103, 0.01, 0.005), 0.02);
    found += c.change == Change::kSlower ? 1 : 0;
    EXPECT_NE(c.change, Change::kFaster);
  }
  EXPECT_GE(found, 45);
}

TEST(ComparisonTest, KnownNoiseDecidesWhereThereAreTooFewProcesses) {
  const ProcessSamples a = {around(100, 0.001)}, b = {around(103, 0.001)};
  const Comparison unknown = compare_processes(a, b, 0.02);
  EXPECT_EQ(unknown.change, Change::kUnclear);
  EXPECT_TRUE(std::isnan(unknown.low));
  EXPECT_DOUBLE_EQ(unknown.ratio, 1.03);
  EXPECT_EQ(compare_processes(a, b, 0.02, ProcessNoise{0.005, 0}).change, Change::kSlower);
  EXPECT_EQ(compare_processes(a, b, 0.02, ProcessNoise{0.02, 0}).change, Change::kUnclear);
  // 99.5 % of exp(sigma·sqrt(2)·z).
  const Comparison wide = compare_processes(a, a, 0.02, ProcessNoise{0.02, 0});
  EXPECT_NEAR(wide.high, std::exp(0.02 * std::sqrt(2.0) * 2.8070), 0.004);
  EXPECT_NEAR(wide.low, 1 / wide.high, 0.004);
}

TEST(ComparisonTest, NoiseIsPooledOverCellsWithSeveralProcesses) {
  // Logarithms of medians: deviations of 0.01 around two centers, four and three degrees.
  const auto cell = [](std::initializer_list<double> logs, double center) {
    ProcessSamples out;
    for (double log : logs) out.push_back({center * std::exp(log)});
    return out;
  };
  const std::vector<ProcessSamples> cells = {cell({-0.02, -0.01, 0, 0.01, 0.02}, 10),
                                             cell({-0.03, -0.01, 0.01, 0.03}, 70), cell({0.5}, 1)};
  const std::optional<ProcessNoise> noise = pooled_noise(cells);
  ASSERT_TRUE(noise);
  EXPECT_EQ(noise->degrees, 7);
  EXPECT_NEAR(noise->log_std, std::sqrt((0.0010 + 0.0020) / 7), 1e-12);
  EXPECT_FALSE(pooled_noise(std::span(cells).subspan(1)));  // three degrees
}

// --- pairs --------------------------------------------------------------------------------------

// A machine whose speed changes from one process to the next: the logarithm of its slowness.
using Slowness = std::vector<double>;
enum class Machine { kDrifts, kRemembers, kClusters, kHasARhythm };

Slowness slowness_of(Machine machine, std::size_t processes, std::uint64_t seed) {
  const CounterRng rng(seed, "machine");
  Slowness out;
  double state = 0;
  for (std::size_t i = 0; i < processes; ++i) {
    const double z = rng.normal(2 * i), u = rng.uniform(2 * i + 1);
    switch (machine) {
      case Machine::kDrifts:
        state = 0.2 * static_cast<double>(i) / static_cast<double>(processes);
        break;
      case Machine::kRemembers: state = 0.9 * state + 0.02 * z; break;  // from process to process
      case Machine::kClusters: state = u < 0.1 ? 0.3 - state : state; break;
      case Machine::kHasARhythm: state = i % 2 == 0 ? 0.0 : 0.1; break;
    }
    out.push_back(state + 0.01 * z);
  }
  return out;
}

struct Sides {
  ProcessSamples a, b;
};

// Times of both builds, in pairs on such a machine; B is slower by `planted`.
Sides measured_in_pairs(Machine machine, int pairs, double planted, std::uint64_t seed) {
  const Slowness slowness = slowness_of(machine, 2 * static_cast<std::size_t>(pairs), seed);
  const CounterRng rng(seed, "samples");
  Sides out;
  std::uint64_t index = 0;
  for (int turn = 0; turn < 2 * pairs; ++turn) {
    const bool is_b = is_b_first(turn / 2, seed) != (turn % 2 == 1);
    const double center =
        3 * std::exp(slowness[static_cast<std::size_t>(turn)]) * (is_b ? 1 + planted : 1);
    std::vector<double>& samples = (is_b ? out.b : out.a).emplace_back();
    for (int i = 0; i < 9; ++i) samples.push_back(center * (1 + 0.005 * rng.normal(index++)));
  }
  return out;
}

// Faster or slower is said only where the test agrees, which costs less than the interval.
bool may_differ(const Sides& sides) {
  const std::vector<double> a = process_medians(sides.a), b = process_medians(sides.b);
  std::vector<double> logs;
  for (std::size_t i = 0; i < a.size(); ++i) logs.push_back(std::log(b[i] / a[i]));
  return wilcoxon_p(logs) < 1 - kProcessConfidence;
}

TEST(PairsTest, EqualBuildsAreNotCalledDifferentOnAnyMachine) {
  for (Machine machine :
       {Machine::kDrifts, Machine::kRemembers, Machine::kClusters, Machine::kHasARhythm}) {
    for (int pairs : {9, 12, 20}) {
      int alarms = 0;
      for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        alarms += may_differ(measured_in_pairs(machine, pairs, 0, seed)) ? 1 : 0;
      }
      EXPECT_LE(alarms, 10) << pairs << " pairs on machine " << static_cast<int>(machine);
    }
  }
}

TEST(PairsTest, ThreePercentAreFoundWhereProcessesByThemselvesCannotShowThem) {
  constexpr int kTrials = 20;
  for (Machine machine : {Machine::kDrifts, Machine::kRemembers, Machine::kClusters}) {
    // Noise that two runs of a pair do not share takes more pairs.
    const int pairs = machine == Machine::kDrifts ? 12 : 40;
    int in_pairs = 0, apart = 0;
    for (std::uint64_t seed = 0; seed < kTrials; ++seed) {
      const Sides sides = measured_in_pairs(machine, pairs, 0.03, seed);
      if (!may_differ(sides)) continue;
      const Comparison c = compare_pairs(sides.a, sides.b, 0.02);
      EXPECT_NE(c.change, Change::kFaster);
      in_pairs += c.change == Change::kSlower ? 1 : 0;
      apart += compare_processes(sides.a, sides.b, 0.02).change == Change::kSlower ? 1 : 0;
    }
    EXPECT_GE(in_pairs, 18) << "machine " << static_cast<int>(machine);
    EXPECT_LE(apart, kTrials / 2) << "machine " << static_cast<int>(machine);
  }
}

TEST(PairsTest, TheRatioIsTheMiddleOneOfThePairs) {
  ProcessSamples a, b;
  for (int i = 0; i < 9; ++i) {
    a.push_back({std::exp2(i)});
    b.push_back({std::exp2(i) * (1.01 + 0.01 * i)});
  }
  const Comparison c = compare_pairs(a, b, 0.02);
  EXPECT_DOUBLE_EQ(c.ratio, 1.05);
  EXPECT_EQ(c.change, Change::kSlower);
  EXPECT_NEAR(c.p, 2.0 / 512, 1e-15);
  EXPECT_GT(c.low, 1);
  EXPECT_FALSE(can_tell_pairs(8));
  a.pop_back();
  b.pop_back();
  EXPECT_EQ(compare_pairs(a, b, 0.02).change, Change::kUnclear);
  EXPECT_EQ(compare_pairs(a, a, 0.02).change, Change::kUnclear);  // too few to say that it is equal
}

}  // namespace
}  // namespace tracestep

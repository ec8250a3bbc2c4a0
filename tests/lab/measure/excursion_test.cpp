// Stretches of longer samples: found where they are, and not made up where order says nothing.
#include "lab/measure/excursion.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "lab/measure/sound_row.h"
#include "lab/measure/validity.h"

namespace tracestep {
namespace {

// Attention on a GPU that other work slowed down for a while: neither half is slower, nor the tail
// long.
const std::vector<double> kHeldUp = {35.74, 35.82, 35.97, 35.93, 35.75, 35.74, 39.43,
                                     40.67, 38.43, 37.76, 37.42, 36.66, 36.33, 36.34};

std::vector<Verdict> judged(const std::vector<double>& samples) {
  Json row = testing::sound();
  row["samples_ms"] = testing::list(samples);
  for (const char* of_others : {"median_ms", "wall_ms", "device_span_ms", "device_busy_ms"}) {
    row[of_others] = Json();
  }
  return judge(ResultRow(row));
}

TEST(ExcursionTest, LongerSamplesInTheMiddleAreFound) {
  const Excursion found = clearest_excursion(kHeldUp);
  EXPECT_EQ(found.begin, 6u);
  EXPECT_EQ(found.count, 6u);
  EXPECT_NEAR(found.ratio, 1.0615, 1e-3);
  EXPECT_LT(found.p, 0.01);
  const std::vector<Verdict> verdicts = judged(kHeldUp);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].code, "unsteady");
  EXPECT_NE(verdicts[0].text.find("6 samples one after the other, from sample 7 on, took 6.2 %"),
            std::string::npos)
      << verdicts[0].text;
}

TEST(ExcursionTest, TheSameSamplesInAnotherOrderShowNone) {
  std::vector<double> mixed;
  for (std::size_t i = 0; i < kHeldUp.size(); ++i) {
    mixed.push_back(kHeldUp[i * 5 % kHeldUp.size()]);
  }
  EXPECT_GT(clearest_excursion(mixed).p, 0.05);
  EXPECT_TRUE(judged(mixed).empty());
}

TEST(ExcursionTest, ADriftIsCalledADriftAlone) {
  std::vector<double> rising(20);
  std::iota(rising.begin(), rising.end(), 100.0);
  const std::vector<Verdict> verdicts = judged(rising);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].code, "drifting");
}

TEST(ExcursionTest, ChanceShowsOneAsOftenAsItsProbabilitySays) {
  constexpr int kLists = 400;
  const CounterRng rng(7, "excursion_test");
  std::uint64_t index = 0;
  int rare = 0;
  for (int i = 0; i < kLists; ++i) {
    std::vector<double> samples;
    for (int j = 0; j < 30; ++j) samples.push_back(100 + 5 * rng.normal(index++));
    rare += clearest_excursion(samples).p <= 0.05 ? 1 : 0;
  }
  EXPECT_GT(rare, 6);  // of 20 expected
  EXPECT_LT(rare, 36);
}

TEST(ExcursionTest, FewOrEqualSamplesShowNone) {
  EXPECT_EQ(clearest_excursion(std::vector<double>{1, 2, 3, 9, 9}).count, 0u);
  EXPECT_EQ(clearest_excursion(std::vector<double>(12, 5.0)).p, 1.0);
}

}  // namespace
}  // namespace tracestep

// The next token: the most likely one, shares of draws, and what top-k and top-p leave out.
#include "train/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/half.h"
#include "base/random.h"

namespace tracestep {
namespace {

// How often each token comes in `draws` even steps of the uniform number.
std::map<std::int64_t, int> tally(std::span<const float> logits, const Sampling& how, int draws) {
  std::map<std::int64_t, int> out;
  for (int i = 0; i < draws; ++i) ++out[sample(logits, how, (i + 0.5) / draws)];
  return out;
}

std::vector<float> logits_of(std::span<const double> shares) {
  std::vector<float> out;
  for (double share : shares) out.push_back(static_cast<float>(std::log(share)));
  return out;
}

TEST(SamplingTest, WithoutTemperatureTheFirstOfTheLargestIsTaken) {
  const CounterRng rng(3, "logits");
  for (const std::size_t count : {1u, 15u, 16u, 17u, 5003u}) {
    std::vector<float> logits(count);
    for (std::size_t i = 0; i < count; ++i) {
      logits[i] = std::floor(static_cast<float>(rng.uniform(i)) * 50.0f);  // with equal ones
    }
    EXPECT_EQ(sample(logits, {.temperature = 0.0}, 0.3),
              std::ranges::max_element(logits) - logits.begin());
  }
}

TEST(SamplingTest, TokensComeAsOftenAsTheirShare) {
  const double shares[] = {0.1, 0.4, 0.05, 0.25, 0.2};
  const auto seen = tally(logits_of(shares), {}, 2000);
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(seen.at(i), shares[i] * 2000, 1.0) << i;
  }
  // A temperature of 1/2 squares the shares.
  const auto cold = tally(logits_of(shares), {.temperature = 0.5}, 2000);
  EXPECT_NEAR(cold.at(1), 0.16 / 0.275 * 2000, 1.5);
}

TEST(SamplingTest, TopKAndTopPLeaveOutTheLeastLikely) {
  const double shares[] = {0.1, 0.4, 0.05, 0.25, 0.2};
  const std::vector<float> logits = logits_of(shares);
  EXPECT_EQ(tally(logits, {.top_k = 1}, 50), (std::map<std::int64_t, int>{{1, 50}}));
  const auto two = tally(logits, {.top_k = 2}, 1300);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 800, 1.0);
  EXPECT_NEAR(two.at(3), 500, 1.0);
  // 0.4 + 0.25 are the first to reach 0.6; of the three most likely, 0.4 alone is 0.47.
  EXPECT_EQ(tally(logits, {.top_p = 0.6}, 100).size(), 2u);
  EXPECT_EQ(tally(logits, {.top_k = 3, .top_p = 0.45}, 100).size(), 1u);
  EXPECT_EQ(tally(logits, {.top_k = 9, .top_p = 0.9999}, 1000).size(), 5u);
}

TEST(SamplingTest, LogitsOfEveryDtypeBecomeTheSameFloats) {
  const float values[] = {1.5f, -0.25f, 3.0f};
  const HostTensor single = HostTensor::of<float>(DType::kF32, {3}, values);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    std::vector<float> out;
    EXPECT_TRUE(read_logits(as_dtype(single, dtype), out));
    EXPECT_TRUE(std::ranges::equal(out, values)) << name_of(dtype);
  }
}

TEST(SamplingTest, LogitsThatAreNotFiniteAreFoundWhereverTheyStand) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const std::size_t at : {0u, 17u, 63u, 66u}) {
      std::vector<float> values(67, 1.0f), out;
      values[at] = bad;
      EXPECT_FALSE(read_logits(HostTensor::of<float>(DType::kF32, {67}, values), out)) << at;
    }
  }
}

}  // namespace
}  // namespace tracestep

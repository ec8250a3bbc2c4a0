#include "lab/measure/sampling.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(SamplingTest, NoiseIsHalfTheIntervalOfTheMedian) {
  // Ten samples: the interval goes from the 2nd to the 9th order statistic.
  const std::vector<double> samples = {10, 11, 12, 13, 14, 16, 17, 18, 19, 20};
  EXPECT_DOUBLE_EQ(noise_percent_of(samples), 100.0 * (19 - 11) / 2 / 15);
  EXPECT_TRUE(std::isnan(noise_percent_of(std::vector<double>{1, 1, 1, 1, 1})));
  EXPECT_EQ(noise_percent_of(std::vector<double>(6, 3.0)), 0);
}

TEST(SamplingTest, WithoutACriterionTheNumberOfStepsDecides) {
  const Protocol rule{.steps = 3};
  EXPECT_EQ(end_of_sampling(rule, std::vector<double>{1, 2}), "");
  EXPECT_EQ(end_of_sampling(rule, std::vector<double>{1, 2, 3}), "steps");
}

TEST(SamplingTest, ACriterionStopsAsSoonAsItIsMetAndNotBeforeTheLeastSteps) {
  const Protocol rule{.steps = 8, .max_noise_percent = 1.0, .max_steps = 20};
  EXPECT_EQ(end_of_sampling(rule, std::vector<double>(7, 5.0)), "");
  EXPECT_EQ(end_of_sampling(rule, std::vector<double>(8, 5.0)), "noise");
  // Fewer than six samples have no interval, whatever they are.
  EXPECT_EQ(end_of_sampling({.steps = 1, .max_noise_percent = 1.0}, std::vector<double>(5, 5.0)),
            "");
}

TEST(SamplingTest, TheCapThatCameFirstIsNamed) {
  std::vector<double> noisy;
  for (int i = 0; i < 20; ++i) noisy.push_back(i % 2 == 0 ? 100.0 : 200.0);
  Protocol rule{.steps = 2, .max_noise_percent = 1.0, .max_steps = 20, .max_seconds = 100};
  EXPECT_EQ(end_of_sampling(rule, std::span(noisy).first(19)), "");
  EXPECT_EQ(end_of_sampling(rule, noisy), "max-steps");
  rule.max_seconds = 1.5;  // ten steps of 150 ms on average
  EXPECT_EQ(end_of_sampling(rule, std::span(noisy).first(10)), "max-seconds");
}

}  // namespace
}  // namespace tracestep

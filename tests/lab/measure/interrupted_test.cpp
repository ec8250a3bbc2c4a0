// Launches of recorded steps that other work held up.
#include "lab/measure/recorded_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tracestep {
namespace {

using ::testing::ElementsAre;

TEST(InterruptedTest, ALaunchThatWasHeldUpCountsWithTheMedianOfItsLike) {
  // Two nodes in three steps; the first of them lost its core in the second step.
  const RecordedLaunch launches[] = {
      {.step = 0, .node = 4, .ms = 0.31}, {.step = 0, .node = 5, .ms = 2.0},
      {.step = 1, .node = 4, .ms = 4.4},  {.step = 1, .node = 5, .ms = 2.9},
      {.step = 2, .node = 4, .ms = 0.33}, {.step = 2, .node = 5, .ms = 2.1}};
  EXPECT_THAT(undisturbed_ms(launches), ElementsAre(0.31, 2.0, 0.33, 2.9, 0.33, 2.1));
}

TEST(InterruptedTest, TwoStepsDoNotTellWhichOfThemIsUsual) {
  const RecordedLaunch launches[] = {{.step = 0, .node = 4, .ms = 0.3},
                                     {.step = 1, .node = 4, .ms = 4.4}};
  EXPECT_THAT(undisturbed_ms(launches), ElementsAre(0.3, 4.4));
}

TEST(InterruptedTest, SeveralLaunchesOfANodeAreToldApartByKernelAndPlace) {
  // A product in two kernels, the second of which runs twice: long, then short.
  std::vector<RecordedLaunch> launches;
  for (std::int32_t step : {0, 1, 2}) {
    launches.push_back({.step = step, .node = 7, .name = 0, .ms = 5});
    launches.push_back({.step = step, .node = 7, .name = 1, .ms = 3});
    launches.push_back({.step = step, .node = 7, .name = 1, .ms = 1});
  }
  EXPECT_THAT(undisturbed_ms(launches), ElementsAre(5, 3, 1, 5, 3, 1, 5, 3, 1));
}

}  // namespace
}  // namespace tracestep

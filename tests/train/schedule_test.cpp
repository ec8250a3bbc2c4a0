#include "train/schedule.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

TEST(ScheduleTest, TheCosineRisesFromZeroAndEndsAtItsMinimum) {
  const Schedule schedule{ScheduleKind::kCosine, 1.0, 0.1, 4, 12};
  schedule.check();
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(8), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.1 + 0.45 * (1 - std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(schedule.at(12), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.1);
}

TEST(ScheduleTest, AConstantScheduleMayWarmUpToo) {
  const Schedule schedule{ScheduleKind::kConstant, 2.0, 0.0, 2, 0};
  schedule.check();
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(2), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(1'000'000), 2.0);
}

TEST(ScheduleTest, AWarmUpAsLongAsTheWholeHasNoCosine) {
  const Schedule schedule{ScheduleKind::kCosine, 1.0, 0.5, 4, 4};
  schedule.check();
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.75);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.5);
}

TEST(ScheduleTest, ImpossibleSchedulesAreRefused) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Schedule& bad : {Schedule{ScheduleKind::kConstant, -1, 0, 0, 0},
                              Schedule{ScheduleKind::kConstant, inf, 0, 0, 0},
                              Schedule{ScheduleKind::kConstant, std::nan(""), 0, 0, 0},
                              Schedule{ScheduleKind::kCosine, 1, 2, 0, 10},
                              Schedule{ScheduleKind::kCosine, 1, std::nan(""), 0, 10},
                              Schedule{ScheduleKind::kCosine, 1, 0, 11, 10},
                              Schedule{ScheduleKind::kConstant, 1, 0, -1, 10}}) {
    message_of(ErrorCode::kUsage, [&] { bad.check(); });
  }
}

TEST(ScheduleTest, TheStepSizeCorrectsBothMoments) {
  EXPECT_NEAR(step_size(1.0, 0.9, 0.999, 1), std::sqrt(0.001) / 0.1, 1e-12);
  EXPECT_NEAR(step_size(2.0, 0.9, 0.999, 3),
              2 * std::sqrt(1 - 0.999 * 0.999 * 0.999) / (1 - 0.9 * 0.9 * 0.9), 1e-12);
  EXPECT_NEAR(step_size(1e-3, 0.9, 0.999, 1'000'000), 1e-3, 1e-15);
  EXPECT_DOUBLE_EQ(step_size(0.5, 0.0, 0.0, 1), 0.5);
}

}  // namespace
}  // namespace tracestep

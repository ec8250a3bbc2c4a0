#include "cli/remaining_time.h"

#include <gtest/gtest.h>

namespace tracestep::cli {
namespace {

// A clock that goes by itself nowhere.
struct Watch {
  RemainingTime time;
  RemainingTime::Clock::time_point now{};

  void pass(double seconds) {
    now += std::chrono::duration_cast<RemainingTime::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  void cell(double cost, double seconds) {
    time.begin(cost, now);
    pass(seconds);
    time.reach(1, now);
  }
  std::string text() const { return time.text(now); }
};

TEST(RemainingTimeTest, WhatIsLeftCostsWhatTheFirstCellsCost) {
  Watch watch;
  for (const double cost : {1.0, 2.0, 3.0, 6.0}) watch.time.plan(cost);
  EXPECT_EQ(watch.text(), "");
  watch.cell(1.0, 0.5);
  EXPECT_EQ(watch.text(), "about 6 s left");
  watch.cell(2.0, 4.0);
  EXPECT_EQ(watch.text(), "about 14 s left");
  watch.cell(3.0, 4.5);
  watch.cell(6.0, 9.0);
  EXPECT_EQ(watch.text(), "about 0 s left");
}

TEST(RemainingTimeTest, AnEstimateMovesWithTheStepsOfACell) {
  Watch watch;
  for (const double cost : {10.0, 10.0}) watch.time.plan(cost);
  watch.time.begin(10.0, watch.now);
  watch.pass(30);  // of preparing, which no step takes
  watch.time.reach(0, watch.now);
  EXPECT_EQ(watch.text(), "");
  watch.pass(2);
  watch.time.reach(0.1, watch.now);
  EXPECT_EQ(watch.text(), "about 38 s left");
  watch.pass(2);
  watch.time.reach(0.2, watch.now);
  EXPECT_EQ(watch.text(), "about 36 s left");
  watch.pass(5);  // a slow step
  EXPECT_EQ(watch.text(), "about 31 s left");
  watch.pass(100);
  EXPECT_EQ(watch.text(), "about 0 s left");
}

TEST(RemainingTimeTest, LongTimesAreRounded) {
  Watch watch;
  watch.time.plan(1.0);
  watch.cell(0.25, 1000.0);
  EXPECT_EQ(watch.text(), "about 50 min left");
  watch.cell(0.25, 25000.0);
  EXPECT_EQ(watch.text(), "about 7.2 h left");
}

}  // namespace
}  // namespace tracestep::cli

#include "cli/remaining_time.h"

#include <gtest/gtest.h>

namespace tracestep::cli {
namespace {

TEST(RemainingTimeTest, WhatIsLeftCostsWhatTheFirstCellsCost) {
  RemainingTime time;
  for (const double cost : {1.0, 2.0, 3.0, 6.0}) time.plan(cost);
  EXPECT_EQ(time.text(), "");
  time.finish(1.0, 0.5);
  EXPECT_EQ(time.text(), "about 6 s left");
  time.finish(2.0, 4.0);
  EXPECT_EQ(time.text(), "about 14 s left");
  time.finish(3.0, 4.5);
  time.finish(6.0, 9.0);
  EXPECT_EQ(time.text(), "about 0 s left");
}

TEST(RemainingTimeTest, LongTimesAreRounded) {
  RemainingTime time;
  time.plan(1.0);
  time.finish(0.25, 1000.0);
  EXPECT_EQ(time.text(), "about 50 min left");
  time.finish(0.25, 25000.0);
  EXPECT_EQ(time.text(), "about 7.2 h left");
}

}  // namespace
}  // namespace tracestep::cli

// Numbers as people read them.
#include "lab/report/digits.h"

#include <gtest/gtest.h>

#include "lab/report/columns.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

TEST(DigitsTest, LongNumbersAreGroupedByThousands) {
  EXPECT_EQ(grouped(3406809600), "3,406,809,600");
  EXPECT_EQ(grouped(-10000), "-10,000");
  EXPECT_EQ(grouped(4096), "4096");
}

TEST(DigitsTest, WhatIsCoarseHasTwoDigits) {
  EXPECT_EQ(two_digits(736.6), "740");
  EXPECT_EQ(two_digits(73.66), "74");
  EXPECT_EQ(two_digits(9.96), "10");
  EXPECT_EQ(two_digits(0.07366), "0.074");
  EXPECT_EQ(two_digits(0), "0");
  Table table{.name = "t", .columns = {real_column("energy_j", "energy", "J", kTwoDigits)}};
  table.add_row({93.31762500000059});
  EXPECT_EQ(display(table).rows[0][0], "93");
}

}  // namespace
}  // namespace tracestep

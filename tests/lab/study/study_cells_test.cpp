// The cells that several tables of a study show: each is measured once, whichever asks for it.
#include <gtest/gtest.h>

#include "lab/study/study.h"

namespace tracestep {
namespace {

CellSpec cell(std::int64_t context, int recorded_steps = 0) {
  return {{.shape = {.batch = 1, .context = context}}, {.recorded_steps = recorded_steps}};
}

TEST(StudyCellsTest, ACellThatTwoTablesWantIsThereOnceWithTheMoreRecordedSteps) {
  const std::vector<WantedCell<CellSpec>> cells =
      each_once<CellSpec>({{cell(8)}, {cell(16)}, {cell(8, 2)}, {cell(32), true}, {cell(32, 1)}});
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].spec.step.shape.context, 32) << "leads come first";
  EXPECT_TRUE(cells[0].is_lead);
  EXPECT_EQ(cells[0].spec.protocol.recorded_steps, 1);
  EXPECT_EQ(cells[1].spec.step.shape.context, 8);
  EXPECT_EQ(cells[1].spec.protocol.recorded_steps, 2);
  EXPECT_EQ(cells[2].spec.step.shape.context, 16);
}

}  // namespace
}  // namespace tracestep

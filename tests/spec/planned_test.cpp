// The defaults of a step that is planned for a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/planned.h"

namespace tracestep {
namespace {

using ::testing::IsEmpty;

RunGrid grid_on(const std::string& device) {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  grid.offer("device", {device});
  return grid;
}

std::string flags_on(RunGrid grid, const PlannedFor& planned) {
  const std::vector<const RunField*> fields = assume_planned(grid, planned);
  const RunSpec run = grid.run();
  return flags_of(fields, {&run, 1});
}

TEST(PlannedTest, OnAGpuAStepIsWhatPeopleTrainWithThere) {
  EXPECT_EQ(flags_on(grid_on("cuda:1"), {}),
            "--precision bf16 --attention flash --executor compiled --batch 4 --context 2048");
}

TEST(PlannedTest, OnOtherDevicesNothingIsAssumed) {
  for (const char* device : {"cpu", "null", "reference"}) {
    RunGrid grid = grid_on(device);
    EXPECT_THAT(assume_planned(grid, {}), IsEmpty()) << device;
    EXPECT_EQ(grid.run().precision, Precision()) << device;
    EXPECT_EQ(grid.run().shape.context, 512) << device;
  }
}

TEST(PlannedTest, WhatIsGivenWinsOneByOne) {
  RunGrid grid = grid_on("cuda");
  grid.give(field_named("precision"), "--precision", {"fp32"});
  grid.give(field_named("batch"), "--batch", {"3"});
  EXPECT_EQ(flags_on(grid, {.devices = 8}), "--attention flash --executor compiled --context 2048");
  EXPECT_TRUE(grid.is_given("batch"));
  EXPECT_FALSE(grid.is_given("context"));
}

TEST(PlannedTest, EveryDeviceHasSequences) {
  for (const std::int64_t devices : {1, 2, 3, 6, 8, 1000}) {
    EXPECT_GE(planned_batch(devices), devices);
    EXPECT_EQ(planned_batch(devices) % devices, 0) << devices;
  }
  EXPECT_EQ(planned_batch(8), 16);
}

TEST(PlannedTest, ThePrecisionIsOneThatTheDeviceMultipliesIn) {
  const auto only = [](DType dtype) {
    return PlannedFor{.multiplies_in = [dtype](const Precision& p) { return p.autocast == dtype; }};
  };
  EXPECT_THAT(flags_on(grid_on("cuda"), only(DType::kF16)),
              ::testing::StartsWith("--precision fp16 "));
  EXPECT_THAT(flags_on(grid_on("cuda"), only(DType::kF32)),
              ::testing::StartsWith("--precision fp32 "));
}

TEST(PlannedTest, TheContextEndsWhereTheModelsPositionsDo) {
  RunGrid grid = grid_on("cuda");
  grid.give(field_named("size"), "--size", {"gpt2"});
  EXPECT_THAT(flags_on(grid, {}), ::testing::EndsWith("--context 1024"));
}

TEST(PlannedTest, FieldsWithSuchDefaultsAreKnown) {
  EXPECT_TRUE(is_planned(field_named("attention")));
  EXPECT_FALSE(is_planned(field_named("ops")));
}

}  // namespace
}  // namespace tracestep

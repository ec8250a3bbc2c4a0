// Lanes: what waits for what, and how long buffers live that another lane uses.
#include "analysis/lanes.h"

#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class LanesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

constexpr NodeId kNone = kNoNode;

// Node 1 gathers %w beside node 2; node 3 reads it. Node 4 sums %3 in place, and node 7 reads that.
// Node 8 overwrites the leaf that node 1 has read.
constexpr const char* kTwoLanes = R"(program "two" {
  input %x : f32[4]
  parameter %w : f32[2]
  %0 : f32[4] = exp(%x) @ a forward
  %1 : f32[4] = all_gather(%w) {ranks=2, shape=[4], lane=1} @ w communication
  %2 : f32[4] = exp(%0) @ a forward
  %3 : f32[4] = mul(%2, %1) @ a forward
  %4 : f32[4] = all_reduce(%3) {ranks=2, lane=1} @ s communication
  %5 : f32[4] = exp(%0) @ a forward
  %6 : f32[4] = exp(%5) @ a forward
  %7 : f32[4] = mul(%6, %4) @ a forward
  %8 : f32[2] = affine(%w) {scale=0.5} @ w optimizer
  update %w = %8
  output "y" = %7
})";

TEST_F(LanesTest, ANodeWaitsForTheOtherLaneWhereItReadsAResult) {
  const Program program = parse_program(kTwoLanes);
  const BufferPlan plan = plan_buffers(program);
  const std::vector<NodeId> waits{kNone, 0, kNone, 1, 3, kNone, kNone, 4, kNone};
  ASSERT_EQ(plan.turns.size(), waits.size());
  for (std::size_t i = 0; i < waits.size(); ++i) {
    EXPECT_EQ(plan.turns[i].waits[i == 1 || i == 4 ? 0 : 1], waits[i]) << "node " << i;
    EXPECT_EQ(plan.turns[i].lane, i == 1 || i == 4 ? 1 : 0) << "node " << i;
  }
}

TEST_F(LanesTest, WhatAnotherLaneUsesLivesUntilItIsWaitedFor) {
  const Program program = parse_program(R"(program "p" {
  input %x : f32[4]
  %0 : f32[4] = exp(%x) @ a forward
  %1 : f32[2] = reduce_scatter(%0) {ranks=2, lane=1} @ s communication
  %2 : f32[4] = exp(%x) @ a forward
  %3 : f32[4] = exp(%2) @ a forward
  %4 : f32[2] = exp(%1) @ a forward
  output "y" = %4
  output "z" = %3
})");
  const BufferPlan plan = plan_buffers(program);
  EXPECT_EQ(plan.buffer(program.node(0).outputs[0])->last, 4) << "node 4 waits for the sum";
  EXPECT_EQ(plan.turns[4].waits[1], 1);
}

TEST_F(LanesTest, ANodeThatOverwritesWhatAnotherLaneReadsWaits) {
  const Program program = parse_program(R"(program "p" {
  parameter %w : f32[2]
  %0 : f32[4] = all_gather(%w) {ranks=2, shape=[4], lane=1} @ w communication
  %1 : f32[2] = affine(%w) {scale=0.5} @ w optimizer
  %2 : f32[4] = exp(%0) @ a forward
  update %w = %1
  output "y" = %2
})");
  const BufferPlan plan = plan_buffers(program);
  ASSERT_EQ(plan.buffer_of[static_cast<std::size_t>(program.node(1).outputs[0])],
            plan.buffer_of[static_cast<std::size_t>(program.leaves[0])]);
  EXPECT_EQ(plan.turns[1].waits[1], 0);
  EXPECT_EQ(plan.turns[2].waits[1], kNone) << "lane 0 has waited";
}

// Node 1 of lane 1 reads both leaves of the block, node 2 overwrites the second.
TEST_F(LanesTest, AViewOverABlockIsOfAllItsLeaves) {
  const Program program = parse_program(R"(program "p" {
  parameter %a : f32[2] in "ab" at 0 of 4
  parameter %b : f32[2] in "ab" at 2 of 4
  %0 : f32[4] = block(%a, %b)
  %1 : f32[8] = all_gather(%0) {ranks=2, shape=[8], lane=1} @ w communication
  %2 : f32[2] = affine(%b) {scale=0.5} @ b optimizer
  %3 : f32[8] = exp(%1) @ a forward
  update %b = %2
  output "y" = %3
})");
  EXPECT_EQ(plan_buffers(program).turns[2].waits[1], 1);
}

// Sums of parts, whose operands nobody reads again: at most two of them wait to be freed.
TEST_F(LanesTest, OperandsOfAnEarlierBatchAreFreedWhenTwoMoreAreIssued) {
  std::string text = "program \"p\" {\n  input %x : f32[4]\n";
  for (int i = 0; i < 4; ++i) {
    text += fmt::format("  %{} : f32[4] = exp(%x) @ a backward\n", 2 * i);
    text +=
        fmt::format("  %{} : f32[2] = reduce_scatter(%{}) {{ranks=2, lane=1}} @ s communication\n",
                    2 * i + 1, 2 * i);
  }
  text += "  %8 : f32[4] = exp(%x) @ a backward\n  output \"y\" = %8\n";
  for (int i = 0; i < 4; ++i) text += fmt::format("  output \"s{}\" = %{}\n", i, 2 * i + 1);
  const Program program = parse_program(text + "}");
  const BufferPlan plan = plan_buffers(program);
  EXPECT_EQ(plan.turns[2].waits[1], kNone);
  EXPECT_EQ(plan.turns[4].waits[1], kNone);
  EXPECT_EQ(plan.turns[6].waits[1], 1) << "the third batch has been issued";
  EXPECT_EQ(plan.turns[8].waits[1], 3);
  EXPECT_EQ(plan.buffer(program.node(0).outputs[0])->last, 6);
  EXPECT_EQ(plan.buffer(program.node(2).outputs[0])->last, 8);
  EXPECT_EQ(plan.buffer(program.node(6).outputs[0])->last, 8) << "the last node of the step";
}

TEST_F(LanesTest, ABatchIsOneForThoseWhoWait) {
  const Program program = parse_program(R"(program "p" {
  input %x : f32[4]
  %0 : f32[4] = exp(%x) @ a backward
  %1 : f32[4] = exp(%0) @ a backward
  %2 : f32[2] = reduce_scatter(%0) {ranks=2, lane=1, batch=1} @ s communication
  %3 : f32[2] = reduce_scatter(%1) {ranks=2, lane=1, batch=1} @ t communication
  %4 : f32[2] = exp(%2) @ a backward
  output "y" = %4
  output "z" = %3
})");
  const BufferPlan plan = plan_buffers(program);
  EXPECT_TRUE(plan.turns[2].opens_batch && !plan.turns[2].closes_batch);
  EXPECT_TRUE(!plan.turns[3].opens_batch && plan.turns[3].closes_batch);
  EXPECT_EQ(plan.turns[4].waits[1], 3) << "it reads the first of them";
}

TEST_F(LanesTest, OnLane0ABatchKeepsItsOperandsToItsEnd) {
  const Program program = parse_program(R"(program "p" {
  input %x : f32[4]
  %0 : f32[4] = exp(%x) @ a backward
  %1 : f32[4] = exp(%x) @ a backward
  %2 : f32[2] = reduce_scatter(%0) {ranks=2, batch=1} @ s communication
  %3 : f32[2] = reduce_scatter(%1) {ranks=2, batch=1} @ t communication
  output "y" = %2
  output "z" = %3
})");
  EXPECT_EQ(plan_buffers(program).buffer(program.node(0).outputs[0])->last, 3);
}

// A copy comes in on lane 1 and goes back on lane 2, both beside node 3; node 5 reads what came in,
// and node 6 overwrites what goes back.
constexpr const char* kThreeLanes = R"(program "three" {
  input %x : f32[4]
  state %a : f32[4] on host
  state %b : f32[4] on host
  %0 : f32[4] = exp(%x) @ a forward
  %1 : f32[4] = reload(%a) {lane=1} @ a forward
  %2 : f32[4] = offload(%b, %0) {lane=2} @ a forward
  %3 : f32[4] = exp(%0) @ a forward
  %4 : f32[4] = exp(%3) @ a forward
  %5 : f32[4] = mul(%4, %1) @ a forward
  %6 : f32[4] = reload(%2) @ a forward
  update %b = %2
  output "y" = %5
  output "z" = %6
})";

TEST_F(LanesTest, LanesBesideTheStepDoNotWaitForEachOther) {
  const BufferPlan plan = plan_buffers(parse_program(kThreeLanes));
  using Waits = std::array<NodeId, kLaneCount>;
  EXPECT_EQ(plan.turns[1].waits, (Waits{0, kNone, kNone}));
  EXPECT_EQ(plan.turns[2].waits, (Waits{0, kNone, kNone}));
  EXPECT_EQ(plan.turns[3].waits, (Waits{kNone, kNone, 2})) << "its operand can be freed";
  EXPECT_EQ(plan.turns[4].waits, (Waits{kNone, kNone, kNone}));
  EXPECT_EQ(plan.turns[5].waits, (Waits{kNone, 1, kNone}));
  EXPECT_EQ(plan.turns[1].until, 5);
  EXPECT_EQ(plan.turns[2].until, 3);
}

TEST_F(LanesTest, ALaneThatUsesWhatAnotherMakesIsAFaultOfThePass) {
  std::string text = kThreeLanes;
  text.replace(text.find("exp(%3)"), 7, "offload(%b, %1) {lane=2}");
  text.replace(text.find("offload(%b, %0)"), 15, "exp(%0)");
  text.replace(text.find("{lane=2}"), 8, "");
  EXPECT_THROW(plan_buffers(parse_program(text)), std::logic_error);
}

}  // namespace
}  // namespace tracestep

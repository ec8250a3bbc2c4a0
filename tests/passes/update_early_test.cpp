// Updates inside backward: where they stand, and that they wait for what they overwrite.
#include "passes/update_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class UpdateEarlyTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string text(const Program& program) {
    verify(program);
    return print(program, {.origins = false});
  }
};

// %w is read by the gradient of %x after its own gradient is there; %v by nothing more.
TEST_F(UpdateEarlyTest, AnUpdateFollowsItsGradientAndTheLastReaderOfItsWeight) {
  const Program out = update_early(parse_program(R"(program "p" {
    parameter %w : f32[4]
    parameter %v : f32[4]
    %0 : f32[4] = exp(%v) @ a backward
    %1 : f32[4] = exp(%0) @ b backward
    %2 : f32[4] = mul(%1, %w) @ c backward
    %3 : f32[4] = exp(%2) @ d backward
    %4 : f32[4] = affine(%1) {scale=2.0} @ w optimizer
    %5 : f32[4] = sub(%w, %4) @ w optimizer
    %6 : f32[4] = sub(%v, %0) @ v optimizer
    update %w = %5
    update %v = %6
    output "y" = %3
  })"));
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %w : f32[4]
  parameter %v : f32[4]
  %0 : f32[4] = exp(%v)
  %1 : f32[4] = sub(%v, %0)
  %2 : f32[4] = exp(%0)
  %3 : f32[4] = mul(%2, %w)
  %4 : f32[4] = affine(%2) {scale=2.0}
  %5 : f32[4] = sub(%w, %4)
  %6 : f32[4] = exp(%3)
  update %w = %5
  update %v = %1
  output "y" = %6
}
)");
}

// Both new values are made from both old ones, as by an expanded optimizer that rounds its moments
// at random.
TEST_F(UpdateEarlyTest, EveryReaderOfAnOldValueComesBeforeTheNewOne) {
  const Program out = update_early(parse_program(R"(program "p" {
    parameter %w : f32[4]
    state %m : f32[4]
    %0 : f32[4] = exp(%w) @ w backward
    %1 : f32[4] = mul(%w, %0) @ w optimizer
    %2 : f32[4] = add(%m, %1) @ w optimizer
    %3 : f32[4] = sub(%w, %0) @ w optimizer
    %4 : f32[4] = exp(%0) @ v backward
    update %w = %3
    update %m = %2
    output "y" = %4
  })"));
  EXPECT_EQ(text(out), R"(program "p" {
  parameter %w : f32[4]
  state %m : f32[4]
  %0 : f32[4] = exp(%w)
  %1 : f32[4] = mul(%w, %0)
  %2 : f32[4] = sub(%w, %0)
  %3 : f32[4] = add(%m, %1)
  %4 : f32[4] = exp(%0)
  update %w = %2
  update %m = %3
  output "y" = %4
}
)");
}

TEST_F(UpdateEarlyTest, UpdatesThatWaitForAllGradientsStayBehindThem) {
  const std::string clipped = R"(program "p" {
    parameter %w : f32[4]
    parameter %v : f32[4]
    %0 : f32[4] = exp(%w) @ a backward
    %1 : f32[4] = exp(%v) @ b backward
    %2 : f32[] = global_norm(%0, %1) @ grad_norm optimizer
    %3 : f32[4] = broadcast(%2) {shape=[4]} @ grad_norm optimizer
    %4 : f32[4] = sub(%w, %3) @ w optimizer
    %5 : f32[4] = sub(%v, %3) @ v optimizer
    update %w = %4
    update %v = %5
  })";
  const Program before = parse_program(clipped);
  EXPECT_EQ(text(update_early(before)), text(before));
}

}  // namespace
}  // namespace tracestep

// Moments and weights that only updates read lie in the host's memory, and nothing else.
#include "passes/update_passes.h"

#include <gtest/gtest.h>

#include "analysis/memory_map.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class OffloadTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // The leaves that lie in the host's memory, in order.
  static std::string moved(const std::string& text) {
    const Program out = offload(parse_program(text));
    verify(out);
    std::string names;
    for (ValueId id : out.leaves) {
      if (out.value(id).memory == Memory::kHost) names += out.value(id).name + " ";
    }
    return names;
  }
};

constexpr const char* kUpdates = R"(program "p" {
  parameter %w : f32[4]
  state %adamw.m.w : f32[4] !optimizer_state
  state %adamw.v.w : f32[4] !optimizer_state
  state %count : f32[] !optimizer_state
  state %shadow.w : bf16[4] !weight_cast
  input %lr : f32[]
  %0 : bf16[4] = exp(%shadow.w) @ a forward
  %1, %2, %3 : f32[4], f32[4], f32[4] = adamw(%w, %0, %adamw.m.w, %adamw.v.w, %lr, %count) @ w optimizer
  %4 : bf16[4] = cast(%1) {dtype=bf16} @ w optimizer
  update %w = %1
  update %adamw.m.w = %2
  update %adamw.v.w = %3
  update %shadow.w = %4
})";

TEST_F(OffloadTest, MomentsMoveAndAWeightWhoseNarrowCopyIsRead) {
  EXPECT_EQ(moved(kUpdates), "w adamw.m.w adamw.v.w ");
  const Program out = offload(parse_program(kUpdates));
  EXPECT_EQ(host_bytes(out), 3 * 16);
  EXPECT_EQ(print(parse_program(print(out))), print(out));
}

TEST_F(OffloadTest, WhatTheStepReadsStays) {
  std::string text = kUpdates;
  text.insert(text.find("  %1, "), "  %5 : f32[4] = exp(%adamw.v.w) @ b backward\n");
  EXPECT_EQ(moved(text), "w adamw.m.w ");
}

TEST_F(OffloadTest, AWeightWithoutANarrowCopyStays) {
  std::string text = kUpdates;
  while (text.find("shadow.w") != std::string::npos) {
    text.replace(text.find("shadow.w"), 8, "another.w");
  }
  EXPECT_EQ(moved(text), "adamw.m.w adamw.v.w ");
}

TEST_F(OffloadTest, ABlockMovesAsAWhole) {
  const std::string block = R"(program "p" {{
  state %m.a : f32[4] !optimizer_state in "m.ab" at 0 of 8
  state %m.b : f32[4] !optimizer_state in "m.ab" at 4 of 8
  %0 : f32[4] = exp(%m.a) @ a optimizer
  %1 : f32[4] = exp(%m.b) @ b {}
  update %m.a = %0
  update %m.b = %1
}})";
  EXPECT_EQ(moved(fmt::format(fmt::runtime(block), "optimizer")), "m.a m.b ");
  EXPECT_EQ(moved(fmt::format(fmt::runtime(block), "backward")), "");
}

}  // namespace
}  // namespace tracestep

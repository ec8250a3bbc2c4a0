// How a node that stands for several is shared out: by bytes, always to the whole.
#include "analysis/origins.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ir/parse.h"
#include "nn/config.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

class OriginSharesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(OriginSharesTest, AFusedNodeIsSharedByTheBytesOfItsParts) {
  const Program program = fuse(parse_program(R"(program "p" {
    input %x : f32[4,6]
    input %y : f32[4,6]
    %0 : f32[4,6] = mul(%x, %y) @ product forward
    %1 : f32[4,6] = silu(%0) @ act forward
    output "z" = %1
  })"));
  ASSERT_EQ(program.nodes.size(), 1u);
  const Node& node = program.nodes[0];
  const std::vector<double> shares = origin_shares(program, node);
  ASSERT_EQ(shares.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    // Two tensors read and one written, against one and one.
    EXPECT_NEAR(shares[i], node.origins[i].path == "product" ? 0.6 : 0.4, 1e-12)
        << node.origins[i].path;
  }
}

TEST_F(OriginSharesTest, AJoinedOptimizerIsSharedByTheSizesOfItsTensors) {
  const Program program = parse_program(R"(program "p" {
    input %lr : f32[]
    input %g : f32[6]
    input %h : f32[2]
    parameter %a : f32[6]
    state %am : f32[6]
    state %av : f32[6]
    parameter %b : f32[2]
    state %bm : f32[2]
    state %bv : f32[2]
    %0, %1, %2, %3, %4, %5 : f32[6], f32[6], f32[6], f32[2], f32[2], f32[2] = multi_adamw(%lr, %lr, %a, %g, %am, %av, %b, %h, %bm, %bv) @ a optimizer | b optimizer by join
    update %a = %0
    update %b = %3
  })");
  EXPECT_EQ(origin_shares(program, program.nodes[0]), (std::vector<double>{0.75, 0.25}));
}

TEST_F(OriginSharesTest, TheSharesOfEveryNodeOfAStepAddUpToOne) {
  RunSpec spec;
  spec.model = preset("tiny");
  spec.precision = parse_precision("test", "bf16");
  spec.shape = {2, 16};
  spec.mode = Mode::kStep;
  spec.executor = ExecutorKind::kCompiled;
  const Program program = step_program(spec, DeviceTraits{.kind = DeviceKind::kCuda});
  bool has_several = false;
  for (const Node& node : program.nodes) {
    const std::vector<double> shares = origin_shares(program, node);
    ASSERT_EQ(shares.size(), node.origins.size());
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1.0, 1e-9) << node.op->name;
    for (double share : shares) EXPECT_GE(share, 0.0);
    has_several = has_several || shares.size() > 1;
  }
  EXPECT_TRUE(has_several);
}

}  // namespace
}  // namespace tracestep

// Which products `by_parts` marks, and what that does to the bytes of a step.
#include "passes/form_passes.h"

#include <gtest/gtest.h>

#include "analysis/plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "planning/cuda_plans.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

TEST(ByPartsTest, MarksLargeProductsOfFloat32) {
  ops::register_all();
  const Program out = by_parts(parse_program(R"(program "p" {
  input %x : f32[128,256]
  input %w : f32[384,256]
  input %v : f32[64,256]
  input %b : bf16[128,256]
  input %c : bf16[384,256]
  %0 : f32[128,384] = matmul(%x, %w) {transpose_b=true} @ a forward
  %1 : f32[128,64] = matmul(%x, %v) {transpose_b=true} @ a forward
  %2 : bf16[128,384] = matmul(%b, %c) {transpose_b=true} @ a forward
  %3 : f32[256,256] = matmul(%x, %x) {transpose_a=true} @ a forward
  %4 : f32[128,128] = matmul(%x, %x) {transpose_b=true} @ a forward
  output "a" = %0
  output "b" = %1
  output "c" = %2
  output "d" = %3
  output "e" = %4
})"));
  std::vector<bool> marked;
  for (const Node& node : out.nodes) marked.push_back(node.attrs.flag("by_parts"));
  EXPECT_EQ(marked, (std::vector<bool>{true, false, false, true, true}));
}

std::int64_t marked_products(const RunSpec& run, DeviceKind kind) {
  const Program program = step_program(run, DeviceTraits{.kind = kind});
  return std::ranges::count_if(program.nodes, [](const Node& node) {
    return node.op->find_attr("by_parts") != nullptr && node.attrs.flag("by_parts");
  });
}

TEST(ByPartsTest, AStepHasThemOnAGpuAndInThatPrecisionAlone) {
  ops::register_all();
  RunSpec run{.model = preset("tiny"), .shape = {.batch = 4, .context = 128}};
  run.precision = parse_precision("test", "fp32-split");
  EXPECT_EQ(name_of(run.precision), "fp32-split");
  EXPECT_GT(marked_products(run, DeviceKind::kCuda), 0);
  EXPECT_EQ(marked_products(run, DeviceKind::kCpu), 0);
  run.precision = {};
  EXPECT_EQ(marked_products(run, DeviceKind::kCuda), 0);
}

TEST(ByPartsTest, APlanHasRoomForWhatIsSplit) {
  for (const auto& [m, n, k, batch] : {std::array<std::int64_t, 4>{2048, 768, 3072, 1},
                                       {768, 768, 2048, 1},
                                       {1, 1, 1, 1},
                                       {129, 161, 65, 3},
                                       {512, 512, 64, 48}}) {
    const SplitProductPlan plan = plan_split_product(m, n, k, batch);
    EXPECT_EQ(plan.padded_k % SplitProductPlan::kBlock, 0);
    EXPECT_GE(plan.padded_k, k);
    EXPECT_GE(plan.b_parts - plan.a_parts, 4 * batch * m * plan.padded_k);
    EXPECT_GE(plan.a_scales - plan.b_parts, 4 * batch * n * plan.padded_k);
    EXPECT_GE(plan.b_maxima - plan.a_maxima, 4 * batch * m * ((k + 255) / 256));
    const std::int64_t sums = plan.shares > 1 ? 4 * plan.shares * batch * m * n : 0;
    EXPECT_GE(plan.workspace_bytes - plan.sums, sums);
    EXPECT_LE(plan.shares, plan.padded_k / SplitProductPlan::kBlock);
  }
  EXPECT_GT(plan_split_product(768, 768, 2048, 1).shares, 1);  // few tiles
}

}  // namespace
}  // namespace tracestep

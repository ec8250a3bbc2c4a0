// Which products `by_parts` marks, and what that does to the bytes of a step.
#include "passes/form_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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

using ::testing::HasSubstr;
using ::testing::Not;

Program marked(std::string_view text, bool has_pairs = false) {
  ops::register_all();
  return by_parts(parse_program(text), [&](const OpDef&) { return has_pairs; });
}

TEST(ByPartsTest, MarksLargeProductsOfFloat32) {
  const Program out = marked(R"(program "p" {
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
})");
  std::vector<bool> marked;
  for (const Node& node : out.nodes) marked.push_back(node.attrs.flag("by_parts"));
  EXPECT_EQ(marked, (std::vector<bool>{true, false, false, true, true}));
}

// Gradients of three layers: in either order, with views in between; those of the third are small.
constexpr std::string_view kGradients = R"(program "p" {
  input %g : f32[128,256]
  input %w : f32[256,384]
  input %x : f32[128,384]
  input %y : f32[128,128]
  input %v : f32[384,256]
  input %s : f32[128,32]
  input %t : f32[128,32]
  %0 : f32[128,384] = matmul(%g, %w) @ a backward
  %1 : f32[256,384] !gradient = matmul(%g, %x) {transpose_a=true} @ a backward
  %2 : f32[384,128] !gradient = matmul(%0, %y) {transpose_a=true} @ b backward
  %3 : f32[200,128] = slice(%2) {axis=0, start=0, stop=200} @ b backward
  %4 : f32[384,128] = slice(%v) {axis=1, start=0, stop=128} @ b backward
  %5 : f32[128,128] = matmul(%0, %4) @ b backward
  %6 : f32[128,32] = matmul(%5, %s) @ c backward
  %7 : f32[128,32] = matmul(%5, %t) {transpose_a=true} @ c backward
  output "a" = %1
  output "b" = %3
  output "c" = %6
  output "d" = %7
})";

TEST(ByPartsTest, GradientsOfALayerShareTheirParts) {
  const Program out = marked(kGradients, true);
  std::vector<std::string> ops;
  for (const Node& node : out.nodes) ops.push_back(node.op->name);
  EXPECT_EQ(ops, (std::vector<std::string>{"linear_grad", "slice", "linear_grad", "slice", "matmul",
                                           "matmul"}));
  const std::string printed = print(out);
  EXPECT_THAT(printed, HasSubstr("= linear_grad(%g, %w, %x) @ a backward"));
  EXPECT_THAT(printed, HasSubstr("f32[256,384] !gradient"));
  EXPECT_THAT(print(marked(kGradients, false)), Not(HasSubstr("linear_grad")));
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

TEST(ByPartsTest, EveryLayerOfAStepHasItsGradientsInOneNode) {
  ops::register_all();
  RunSpec run{.model = preset("small"), .shape = {.batch = 1, .context = 128}};
  run.precision = parse_precision("test", "fp32-split");
  run.attention = AttentionForm::kFlash;
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    run.executor = executor;
    const Program program = step_program(run, DeviceTraits{.kind = DeviceKind::kCuda});
    std::map<std::string, std::int64_t> count;
    for (const Node& node : program.nodes) ++count[node.op->name];
    // A layer has seven weights; compiled, four are left, and sums of rows join forward products.
    const std::int64_t weights = executor == ExecutorKind::kEager ? 7 : 4;
    EXPECT_EQ(count["linear_grad"], weights * run.model.layers + 1);
    EXPECT_EQ(count["matmul"] + count["matmul_add"], weights * run.model.layers + 1);
  }
}

// Everything in its place, and nothing on top of something else.
void expect_parts(const SplitPartsPlan& parts, std::int64_t rows, std::int64_t k,
                  std::int64_t batch, std::int64_t end) {
  EXPECT_EQ(parts.rows, rows);
  EXPECT_EQ(parts.padded_k % SplitPartsPlan::kBlock, 0);
  EXPECT_GE(parts.padded_k, k);
  EXPECT_GE(parts.scales - parts.parts, 4 * batch * rows * parts.padded_k);
  EXPECT_GE(end - parts.scales, 4 * batch * rows * parts.padded_k / SplitPartsPlan::kBlock);
}

TEST(ByPartsTest, APlanHasRoomForWhatIsSplit) {
  for (const auto& [m, n, k, batch] : {std::array<std::int64_t, 4>{2048, 768, 3072, 1},
                                       {768, 768, 2048, 1},
                                       {1, 1, 1, 1},
                                       {129, 161, 65, 3},
                                       {512, 512, 64, 48}}) {
    const SplitProductPlan plan = plan_split_product(m, n, k, batch);
    expect_parts(plan.a, m, k, batch, plan.b.parts);
    expect_parts(plan.b, n, k, batch, plan.tiles.sums);
    const std::int64_t shares = plan.tiles.shares;
    const std::int64_t sums = shares > 1 ? 4 * shares * batch * m * n : 0;
    EXPECT_GE(plan.workspace_bytes - plan.tiles.sums, sums);
    EXPECT_LE(shares, plan.a.padded_k / SplitPartsPlan::kBlock);
  }
  EXPECT_GT(plan_split_product(768, 768, 2048, 1).tiles.shares, 1);  // few tiles
}

TEST(ByPartsTest, APlanOfGradientsHasRoomForBoth) {
  const std::int64_t rows = 2048, n = 769, k = 700;
  const SplitLinearGradPlan plan = plan_split_linear_grad(rows, n, k);
  expect_parts(plan.g_along, rows, n, 1, plan.g_down.parts);
  expect_parts(plan.g_down, n, rows, 1, plan.w.parts);
  expect_parts(plan.w, k, n, 1, plan.x.parts);
  expect_parts(plan.x, k, rows, 1, plan.dx.sums);
  EXPECT_GE(plan.dw.sums - plan.dx.sums, plan.dx.shares > 1 ? 4 * plan.dx.shares * rows * k : 0);
  EXPECT_GT(plan.dw.shares, 1);
  EXPECT_GE(plan.workspace_bytes - plan.dw.sums, 4 * plan.dw.shares * n * k);
}

}  // namespace
}  // namespace tracestep

// When collectives run: which are issued together, and what they stand between.
#include "passes/parallel_passes.h"

#include <gtest/gtest.h>

#include "analysis/lanes.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // The ops in order without views; collectives on lane 1 in brackets, those of one batch in one
  // pair of them.
  static std::string order_of(const Program& program) {
    verify(program, VerifyStage::kBuilt);
    std::string out;
    std::int64_t open = -1;
    for (const Node& node : program.nodes) {
      if (makes_views(program, node)) continue;
      const std::int64_t lane = has_lane(*node.op) ? node.attrs.integer("lane") : 0;
      const std::int64_t batch = lane == 1 ? node.attrs.integer("batch") : -1;
      const bool goes_on = open > 0 && batch == open;
      if (!goes_on && open >= 0) out += "]";
      if (!goes_on && lane == 1) out += " [";
      if (goes_on || lane == 0) out += " ";
      out += node.op->name + "(" + node.origin().path + ")";
      open = batch;
    }
    return out + (open >= 0 ? "]" : "");
  }
};

// Gradients of 20, 24 and 4 bytes, of which the update of the last one is read first.
constexpr const char* kSums = R"(program "p" {
  parameter %a.w : f32[2,3]
  parameter %b.w : f32[5]
  parameter %c.w : f32[1]
  %0 : f32[5] !gradient = affine(%b.w) {scale=2.0} @ b backward
  %1 : f32[5] !gradient = all_reduce(%0) {ranks=2} @ b communication
  %2 : f32[2,3] !gradient = affine(%a.w) {scale=3.0} @ a backward
  %3 : f32[2,3] !gradient = all_reduce(%2) {ranks=2} @ a communication
  %4 : f32[1] !gradient = affine(%c.w) {scale=4.0} @ c backward
  %5 : f32[1] !gradient = all_reduce(%4) {ranks=2} @ c communication
  %6 : f32[1] = sub(%c.w, %5) @ c optimizer
  %7 : f32[5] = sub(%b.w, %1) @ b optimizer
  %8 : f32[2,3] = sub(%a.w, %3) @ a optimizer
  update %a.w = %8
  update %b.w = %7
  update %c.w = %6
})";

TEST_F(OverlapTest, SumsAreIssuedTogetherWhenTheyFillABucket) {
  EXPECT_EQ(order_of(overlap(parse_program(kSums), {.ranks = 2, .bucket_bytes = 40})),
            " affine(b) affine(a) [all_reduce(b) all_reduce(a)] affine(c) [all_reduce(c)]"
            " sub(b) sub(a) sub(c)")
      << "an update does not wait for the sums that were issued last";
}

TEST_F(OverlapTest, EachTensorOrAllOfThemAreBucketsToo) {
  const Program sums = parse_program(kSums);
  EXPECT_EQ(order_of(overlap(sums, {.ranks = 2, .bucket_bytes = Parallel::kEachTensor})),
            " affine(b) [all_reduce(b)] affine(a) [all_reduce(a)] affine(c) [all_reduce(c)]"
            " sub(b) sub(a) sub(c)");
  EXPECT_EQ(order_of(overlap(sums, {.ranks = 2, .bucket_bytes = Parallel::kAllTensors})),
            " affine(b) affine(a) affine(c) [all_reduce(b) all_reduce(a) all_reduce(c)]"
            " sub(c) sub(b) sub(a)");
}

TEST_F(OverlapTest, TheLastSumsRunBesideTheUpdates) {
  const Program program = parse_program(R"(program "p" {
  parameter %a.w : f32[2]
  parameter %b.w : f32[5]
  %0 : f32[5] !gradient = affine(%b.w) {scale=2.0} @ b backward
  %1 : f32[5] !gradient = all_reduce(%0) {ranks=2} @ b communication
  %2 : f32[2] !gradient = affine(%a.w) {scale=3.0} @ a backward
  %3 : f32[2] = sub(%a.w, %2) @ a optimizer
  %4 : f32[5] = sub(%b.w, %1) @ b optimizer
  update %a.w = %3
  update %b.w = %4
})");
  EXPECT_EQ(order_of(overlap(program, {.ranks = 2})),
            " affine(b) affine(a) [all_reduce(b)] sub(a) sub(b)");
}

TEST_F(OverlapTest, SumsCanWaitForTheUpdates) {
  EXPECT_EQ(order_of(overlap(parse_program(kSums),
                             {.ranks = 2, .bucket_bytes = 4, .overlap = Overlap::kUpdates})),
            " affine(b) [all_reduce(b)] affine(a) affine(c) [all_reduce(a)] [all_reduce(c)]"
            " sub(b) sub(a) sub(c)");
}

TEST_F(OverlapTest, WithoutOverlapTheBatchesAreOnLane0) {
  const Program out =
      overlap(parse_program(kSums), {.ranks = 2, .bucket_bytes = 40, .overlap = Overlap::kOff});
  EXPECT_EQ(order_of(out),
            " affine(b) affine(a) all_reduce(b) all_reduce(a) affine(c) all_reduce(c)"
            " sub(b) sub(a) sub(c)");
  EXPECT_NE(print(out).find("all_reduce(%0) {batch=1, ranks=2}"), std::string::npos) << print(out);
}

// A sum whose result the next node of backward reads, behind one of weights.
TEST_F(OverlapTest, ASumThatBackwardReadsStaysWhereItIs) {
  const Program program = parse_program(R"(program "p" {
  input %x : f32[4]
  parameter %w : f32[4]
  %0 : f32[4] = all_reduce(%w) {ranks=2} @ w communication
  %1 : f32[4] = mul(%0, %x) @ x forward
  %2 : f32[4] = all_reduce(%1) {ranks=2} @ y communication
  %3 : f32[4] = exp(%2) @ y forward
  output "y" = %3
})");
  EXPECT_EQ(order_of(overlap(program, {.ranks = 2})),
            " [all_reduce(w)] mul(x) all_reduce(y) exp(y)");
}

constexpr const char* kGathers = R"(program "p" {
  input %x : f32[3]
  parameter %layers.0.w : f32[2]
  parameter %layers.0.v : f32[2]
  parameter %layers.1.w : f32[2]
  parameter %layers.2.w : bf16[2]
  %0 : f32[3] = all_gather(%layers.0.w) {ranks=2, shape=[3]} @ layers.0.w communication
  %1 : f32[3] = mul(%x, %0) @ layers.0 forward
  %2 : f32[3] = all_gather(%layers.0.v) {ranks=2, shape=[3]} @ layers.0.v communication
  %3 : f32[3] = mul(%1, %2) @ layers.0 forward
  %4 : f32[3] = all_gather(%layers.1.w) {ranks=2, shape=[3]} @ layers.1.w communication
  %5 : f32[3] = mul(%3, %4) @ layers.1 forward
  %6 : f32[2] = cast(%layers.2.w) {dtype=f32} @ layers.2.w forward
  %7 : f32[3] = all_gather(%6) {ranks=2, shape=[3]} @ layers.2.w communication
  %8 : f32[3] = mul(%5, %7) @ layers.2 forward
  output "y" = %8
})";

TEST_F(OverlapTest, WeightsOfALayerAreGatheredTogetherSomeLayersAhead) {
  const Program gathers = parse_program(kGathers);
  const auto order = [&](const Parallel& choice) { return order_of(overlap(gathers, choice)); };
  EXPECT_EQ(order({.ranks = 2, .shard = 3, .prefetch = 0}),
            " [all_gather(layers.0.w) all_gather(layers.0.v)] mul(layers.0) mul(layers.0)"
            " [all_gather(layers.1.w)] mul(layers.1) cast(layers.2.w) [all_gather(layers.2.w)]"
            " mul(layers.2)");
  EXPECT_EQ(order({.ranks = 2, .shard = 3, .prefetch = 1}),
            " [all_gather(layers.0.w) all_gather(layers.0.v)] [all_gather(layers.1.w)]"
            " mul(layers.0) mul(layers.0) cast(layers.2.w) [all_gather(layers.2.w)] mul(layers.1)"
            " mul(layers.2)");
}

// Backward of two divided products: %1 is summed for what is below, %2 is a gradient of a weight.
constexpr const char* kDivided = R"(program "p" {
  input %x : f32[4,4]
  parameter %a.w : f32[4,4]
  parameter %b.w : f32[4,4]
  %0 : f32[4,4] !gradient = matmul(%x, %x) {transpose_a=true} @ b.dw backward
  %1 : f32[4,4] = matmul(%x, %b.w) @ b.dx backward
  %2 : f32[4,4] = all_reduce(%1) {ranks=2} @ b communication
  %3 : f32[4,4] !gradient = matmul(%2, %x) {transpose_a=true} @ a.dw backward
  %4 : f32[4,4] = matmul(%2, %a.w) @ a.dx backward
  %5 : f32[4,4] = all_reduce(%4) {ranks=2} @ a communication
  %6 : f32[4,4] = all_reduce(%5) {ranks=2} @ c communication
  output "y" = %6
  output "da" = %3
  output "db" = %0
})";

TEST_F(OverlapTest, SumsOfADividedModelRunBesideGradientsOfWeights) {
  EXPECT_EQ(order_of(beside_products(parse_program(kDivided))),
            " matmul(b.dx) [all_reduce(b)] matmul(b.dw) matmul(a.dx) [all_reduce(a)] matmul(a.dw)"
            " all_reduce(c)")
      << "nothing is left to run beside the last one, which stays on lane 0";
}

}  // namespace
}  // namespace tracestep

// Steps that ranks share: the passes that make a program of the choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/optimizer.h"
#include "passes/parallel_passes.h"
#include "run/parallel.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

class ParallelTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // Expects the lines, in this order, in the text of the program.
  static void expect_lines(const Program& program, const std::vector<std::string>& lines) {
    verify(program, VerifyStage::kBuilt);
    const std::string text = print(program);
    std::size_t at = 0;
    for (const std::string& line : lines) {
      const std::size_t found = text.find(line, at);
      EXPECT_NE(found, std::string::npos) << line << "\nin\n" << text;
      if (found != std::string::npos) at = found + line.size();
    }
  }
};

// Two weights, of which the second has its gradient first.
constexpr const char* kBackward = R"(program "p" {
  parameter %a.w : f32[2,3]
  parameter %b.w : f32[5]
  %0 : f32[5] !gradient = affine(%b.w) {scale=2.0} @ b backward
  %1 : f32[2,3] !gradient = affine(%a.w) {scale=3.0} @ a backward
  %2 : f32[] = fill() {dtype=f32, shape=[], value=1.0} @ head forward
  output "loss" = %2
  output "grad.a.w" = %1
  output "grad.b.w" = %0
})";

TEST_F(ParallelTest, EachGradientIsSummedAsSoonAsItIsThere) {
  const Program out = reduce(parse_program(kBackward), {.ranks = 2});
  expect_lines(
      out, {"%0 : f32[5] !gradient = affine(%b.w)",
            "%1 : f32[5] !gradient = all_reduce(%0) {ranks=2} @ b communication by reduce",
            "%2 : f32[2,3] !gradient = affine(%a.w)",
            "%3 : f32[2,3] !gradient = all_reduce(%2) {ranks=2} @ a communication",
            "%5 : f32[] = all_reduce(%4) {ranks=2} @ head communication", "output \"loss\" = %5",
            "output \"grad.a.w\" = %3", "output \"grad.b.w\" = %1"});
}

constexpr const char* kMixed = R"(program "p" {
  parameter %a.w : f32[3]
  %0 : bf16[3] = cast(%a.w) {dtype=bf16} @ a backward
  %1 : f32[3] !gradient = cast(%0) {dtype=f32} @ a backward
  output "grad.a.w" = %1
})";

TEST_F(ParallelTest, LowSumsAreOfGradientsAsTheProductsMadeThem) {
  const Program mixed = parse_program(kMixed);
  expect_lines(reduce(mixed, {.ranks = 2}),
               {"f32[3] !gradient = cast(%0)", "f32[3] !gradient = all_reduce(%1)"});
  expect_lines(
      reduce(mixed, {.ranks = 2, .low_sums = true}),
      {"bf16[3] !gradient = all_reduce(%0) {ranks=2} @ a communication",
       "f32[3] !gradient = cast(%2) {dtype=f32} @ a communication", "output \"grad.a.w\" = %3"});
  expect_lines(reduce(mixed, {.ranks = 2, .shard = 2, .low_sums = true}),
               {"bf16[2] !gradient = reduce_scatter(%0)", "f32[2] !gradient = cast("});
}

TEST_F(ParallelTest, PartsOfGradientsAreMadeAtOnceOrBehindBackward) {
  const Program backward = parse_program(kBackward);
  expect_lines(reduce(backward, {.ranks = 2, .shard = 2}),
               {"affine(%b.w)", "f32[3] !gradient = reduce_scatter(", "affine(%a.w)",
                "f32[3] !gradient = reduce_scatter("});
  expect_lines(reduce(backward, {.ranks = 2, .shard = 1}),
               {"affine(%b.w)", "affine(%a.w)", "f32[3] !gradient = reduce_scatter(",
                "f32[3] !gradient = reduce_scatter("});
}

TEST_F(ParallelTest, ARankUpdatesItsPartAndGathersTheOthers) {
  const Program parts = reduce(parse_program(kBackward), {.ranks = 2, .shard = 2});
  const Program out = optimizer(parts, {.clip = 1.0}, {.shards = 2});
  expect_lines(out, {"state %adamw.m.a.w : f32[3]", "global_norm", "mul(", "all_reduce(", "sqrt(",
                     "own_part(%a.w) {ranks=2} @ a optimizer", "adamw(", "f32[2,3] = all_gather(",
                     ", %a.w) {ranks=2, shape=[2,3]} @ a communication"});
}

constexpr const char* kForward = R"(program "p" {
  input %x : f32[4,3]
  parameter %layer.w : f32[5,3] in "block" at 0 of 30
  parameter %layer.v : f32[5,3] in "block" at 15 of 30
  %0 : f32[4,5] = matmul(%x, %layer.w) {transpose_b=true} @ layer forward
  %1 : f32[4,3] = matmul(%0, %layer.v) @ layer forward
  %2 : f32[] = sum(%1) {axes=[0,1], keepdims=false} @ head forward
  output "loss" = %2
})";

TEST_F(ParallelTest, WeightsAreGatheredBeforeTheirFirstReader) {
  const Program out = shard(parse_program(kForward), {4});
  expect_lines(out, {"parameter %layer.w : f32[4]\n", "parameter %layer.v : f32[4]\n",
                     "all_gather(%layer.w) {ranks=4, shape=[5,3]} @ layer communication by shard",
                     "matmul(%x", "all_gather(%layer.v)", "matmul("});
}

TEST_F(ParallelTest, GatheredWeightsAreSummedBackIntoPartsAndNotKept) {
  const Program out =
      regather(reduce(autograd(shard(parse_program(kForward), {4})), {.ranks = 4, .shard = 3}));
  expect_lines(out, {"all_gather(%layer.w)", "all_gather(%layer.v)", "sum(", "all_gather(%layer.v)",
                     "by regather", "reduce_scatter(", "communication", "output \"grad.layer.w\"",
                     "output \"grad.layer.v\""});
  // The first weight's value is not read in backward: x needs no gradient.
  EXPECT_EQ(
      std::ranges::count_if(out.nodes, [](const Node& n) { return n.op->name == "all_gather"; }),
      3);
}

// A feed-forward layer without its activation: two products, the first of which is divided by
// columns and the second by what it sums over.
constexpr const char* kFeedForward = R"(program "p" {
  input %x : f32[6,4]
  parameter %layers.0.ffn.w1.weight : f32[8,4] in "block" at 0 of 64
  parameter %layers.0.ffn.w3.weight : f32[8,4] in "block" at 32 of 64
  parameter %layers.0.ffn.w2.weight : f32[4,8]
  %0 : f32[6,8] = matmul(%x, %layers.0.ffn.w1.weight) {transpose_b=true} @ w1 forward
  %1 : f32[6,8] = matmul(%x, %layers.0.ffn.w3.weight) {transpose_b=true} @ w3 forward
  %2 : f32[6,8] = mul(%0, %1) @ act forward
  %3 : f32[6,4] = matmul(%2, %layers.0.ffn.w2.weight) {transpose_b=true} @ w2 forward
  %4 : f32[] = sum(%3) {axes=[0,1], keepdims=false} @ head forward
  output "loss" = %4
  output "hidden" = %2
})";

TEST_F(ParallelTest, ADividedProductIsSummedWhereItsTermsAreOnSeveralRanks) {
  const Program out = split(parse_program(kFeedForward), {.ranks = 2, .tensor = 2});
  expect_lines(
      out, {"parameter %layers.0.ffn.w1.weight : f32[4,4] in \"block\" at 0 of 32",
            "parameter %layers.0.ffn.w3.weight : f32[4,4] in \"block\" at 16 of 32",
            "parameter %layers.0.ffn.w2.weight : f32[4,4]\n",
            "%0 : f32[6,4] = to_ranks(%x) {ranks=2} @ w1 forward by split",
            "%1 : f32[6,4] = matmul(%0, %layers.0.ffn.w1", "%2 : f32[6,4] = matmul(%0, ",
            "%3 : f32[6,4] = mul(%1, %2) @ act forward", "%4 : f32[6,4] = matmul(%3, ",
            "%5 : f32[6,4] = all_reduce(%4) {ranks=2} @ w2 communication by split", "= sum(%5)",
            "f32[2,6,4] = all_gather(", "permute(", "f32[6,8] = reshape(", "output \"hidden\""});
}

// A bias goes with the columns of its product, and is added once to a sum of terms.
TEST_F(ParallelTest, ABiasIsDividedWithColumnsAndAddedBehindASum) {
  const Program out = split(parse_program(R"(program "p" {
  input %x : f32[6,4]
  parameter %layers.0.ffn.w1.weight : f32[8,4]
  parameter %layers.0.ffn.w1.bias : f32[8]
  parameter %layers.0.ffn.w2.weight : f32[4,8]
  parameter %layers.0.ffn.w2.bias : f32[4]
  %0 : f32[6,8] = matmul_bias(%x, %layers.0.ffn.w1.weight, %layers.0.ffn.w1.bias) {transpose_b=true} @ w1 forward
  %1 : f32[6,4] = matmul_bias(%0, %layers.0.ffn.w2.weight, %layers.0.ffn.w2.bias) {transpose_b=true} @ w2 forward
  output "y" = %1
})"),
                            {.ranks = 2, .tensor = 2});
  expect_lines(
      out,
      {"parameter %layers.0.ffn.w1.bias : f32[4]\n", "parameter %layers.0.ffn.w2.bias : f32[4]\n",
       "to_ranks(%x)", "%1 : f32[6,4] = matmul_bias(%0, ", "%2 : f32[6,4] = matmul(%1, ",
       "%3 : f32[6,4] = all_reduce(%2)", "broadcast(%layers.0.ffn.w2.bias)", "= add(%3, "});
}

TEST_F(ParallelTest, TheGradientsOfWhatAllPartsReadAreSummed) {
  const Program divided = split(parse_program(kFeedForward), {.ranks = 2, .tensor = 2});
  const Program out = autograd(divided, {.inputs = true});
  expect_lines(out,
               {"= sum(", "= add(", "@ w1 backward by autograd",
                "all_reduce(%22) {ranks=2} @ w1 backward by autograd", "output \"grad.x\" = %23"});
}

TEST_F(ParallelTest, ADividedSizeMustBeAMultipleOfTheRanks) {
  try {
    split(parse_program(kFeedForward), {.ranks = 3, .tensor = 3});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("3 ranks cannot divide the 8 rows of layers.0.ffn.w1.weight"));
  }
}

TEST_F(ParallelTest, AnOpThatNeedsAllPartsIsNamed) {
  const Program program = parse_program(R"(program "p" {
    input %x : f32[6,4]
    parameter %layers.0.ffn.w1.weight : f32[8,4]
    %0 : f32[6,8] = matmul(%x, %layers.0.ffn.w1.weight) {transpose_b=true} @ w1 forward
    %1 : f32[6,8] = softmax(%0) @ gate forward
    output "y" = %1
  })");
  try {
    split(program, {.ranks = 2, .tensor = 2});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("softmax (gate) reads a tensor that ranks divide"));
  }
}

// The first weight is read in bfloat16 alone, the second in float32 as well.
constexpr const char* kCasts = R"(program "p" {
  parameter %a.w : f32[2]
  parameter %b.w : f32[2]
  %0 : f32[4] = all_gather(%a.w) {ranks=2, shape=[4]} @ a communication
  %1 : f32[4] = all_gather(%b.w) {ranks=2, shape=[4]} @ b communication
  %2 : bf16[4] = cast(%0) {dtype=bf16} @ a forward
  %3 : bf16[4] = cast(%1) {dtype=bf16} @ b forward
  %4 : bf16[4] = mul(%2, %3) @ a forward
  %5 : f32[4] = exp(%1) @ b forward
  %6 : bf16[4] = mul(%4, %2) @ a backward
  output "y" = %6
  output "z" = %5
})";

TEST_F(ParallelTest, WeightsReadInALowDtypeAreGatheredInIt) {
  const Program out = narrow_gathers(parse_program(kCasts));
  expect_lines(out, {"bf16[2] !weight_cast = cast(%a.w) {dtype=bf16} @ a communication",
                     "bf16[4] !weight_cast = all_gather(%0) {ranks=2, shape=[4]}",
                     "f32[4] = all_gather(%b.w)", "mul(%1, "});
  expect_lines(regather(out), {"all_gather(%0)", "all_gather(%b.w)", "mul(", "cast(%a.w)",
                               "by regather", "all_gather(", "by regather", "mul("});
}

}  // namespace
}  // namespace tracestep

// The tiles that attention on a CPU computes, and what else a launch's work says of its shape.
#include "lab/predict/attention_tiles.h"

#include <gtest/gtest.h>

#include "ir/parse.h"
#include "lab/predict/kernel_work.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

Attrs attention(bool causal, std::int64_t window = 0) {
  return {{"causal", causal}, {"window", window}};
}

AttentionSizes sizes(std::int64_t tokens, std::int64_t width = 64) {
  return {.heads = 6, .key_heads = 6, .queries = tokens, .keys = tokens, .width = width};
}

TEST(AttentionTilesTest, WithoutAMaskTilesComputeEveryPairOnce) {
  for (bool is_grad : {false, true}) {
    const AttentionTiles found = attention_tiles(sizes(224), attention(false), is_grad);
    EXPECT_EQ(found.scores_per_pair, 1.0) << is_grad;
    EXPECT_EQ(found.scores, 6.0 * 224 * 224) << is_grad;
  }
}

// The last tile of a row and those on the diagonal compute pairs that nobody sees.
TEST(AttentionTilesTest, FewKeysComputeMoreThanTheySee) {
  for (bool is_grad : {false, true}) {
    double before = 2;
    for (std::int64_t tokens : {64, 128, 512, 2048}) {
      const double now = attention_tiles(sizes(tokens), attention(true), is_grad).scores_per_pair;
      EXPECT_GT(now, 1.0) << tokens;
      EXPECT_LT(now, before) << tokens;
      before = now;
    }
    EXPECT_LT(before, 1.03);
  }
}

TEST(AttentionTilesTest, AWindowOfAllKeysIsNone) {
  for (bool is_grad : {false, true}) {
    const AttentionTiles all = attention_tiles(sizes(600), attention(true), is_grad);
    const AttentionTiles same = attention_tiles(sizes(600), attention(true, 600), is_grad);
    const AttentionTiles few = attention_tiles(sizes(600), attention(true, 100), is_grad);
    EXPECT_EQ(all.scores, same.scores);
    EXPECT_EQ(all.packed, same.packed);
    EXPECT_LT(few.scores, 0.9 * all.scores);
    EXPECT_GT(few.scores_per_pair, 2);  // the panel's tiles are computed as wholes
    EXPECT_LE(few.packed, all.packed);
  }
}

// Packing grows with the width of heads, and exponentials do not.
TEST(AttentionTilesTest, NarrowHeadsHaveAsManyScores) {
  const AttentionTiles wide = attention_tiles(sizes(300, 64), attention(true), false);
  const AttentionTiles narrow = attention_tiles(sizes(300, 32), attention(true), false);
  EXPECT_EQ(wide.scores, narrow.scores);
  EXPECT_EQ(wide.packed, 2 * narrow.packed);
  EXPECT_GE(narrow.packed, 6.0 * 4 * 300 * 32);  // each operand, and the result
  EXPECT_EQ(attention_tiles(sizes(0), attention(true), false).scores, 0);
}

class LaunchShapeTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static KernelWork work_of(const std::string& text) {
    const std::vector<KernelWork> all =
        kernel_work(parse_program(text), traits_named("cpu", 2), {1 << 20, 32 << 20});
    EXPECT_EQ(all.size(), 1U);
    return all.front();
  }
  static std::string sum_over(int axis) {
    return work_of(fmt::format(R"(program "p" {{
    input %x : f32[4,96,96]
    %0 : f32[4,96] = sum(%x) {{axes = [{}]}}
    output "y" = %0 }})",
                               axis))
        .kernel;
  }
  static double operations(std::int64_t rows, std::int64_t columns) {
    return at(work_of(fmt::format(R"(program "p" {{
    input %a : f32[{0},64]
    input %b : f32[64,{1}]
    %0 : f32[{0},{1}] = matmul(%a, %b)
    output "y" = %0 }})",
                                  rows, columns))
                  .amounts,
              Effort::kOperations);
  }
};

// Of square matrices the shape of the result does not tell which axis is gone.
TEST_F(LaunchShapeTest, ASumOverRowsOfASquareIsNoSumOverColumns) {
  EXPECT_EQ(sum_over(-1), sum_over(2));
  EXPECT_EQ(sum_over(-2), sum_over(1));
  EXPECT_NE(sum_over(-1), sum_over(-2));
}

// 72 columns are computed as 96, and 3 rows as 4.
TEST_F(LaunchShapeTest, ProductsCountWholeRegisterTiles) {
  EXPECT_EQ(operations(56, 72), operations(56, 96));
  EXPECT_EQ(operations(56 + 3, 64), operations(56 + 4, 64));
  EXPECT_EQ(operations(56, 64), 2.0 * 56 * 64 * 64);
}

}  // namespace
}  // namespace tracestep

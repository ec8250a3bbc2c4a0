// How forms of parallelism take to more ranks: laws, and the closed forms that the page has.
#include "lab/explain/scaling.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "lab/explain/explain.h"
#include "lab/memory/run.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

class ScalingTest : public ::testing::Test {
 protected:
  static ScaledStep step(RankForm form, int ranks, bool is_weak = false, RankRates rates = kRates) {
    return scaled_step(form, preset("medium"), {.batch = 512, .context = 1024}, rates, ranks,
                       is_weak);
  }
  static Json cell(const Table& table, const std::string& key, const std::string& kind,
                   std::string_view column) {
    for (const auto& row : table.rows) {
      if (row[0] == Json(kind) && row[1] == Json(key)) return row[table.index_of(column).value()];
    }
    ADD_FAILURE() << kind << " " << key;
    return {};
  }

  static constexpr RankRates kRates{
      .ranks = 64, .flops_per_s = 1e15, .link_bytes_per_s = 5e10, .between_bytes_per_s = 0};
};

TEST_F(ScalingTest, OneRankOnlyComputes) {
  for (const RankForm form : kAll<RankForm>) {
    const ScaledStep one = step(form, 1);
    EXPECT_EQ(one.exposed_s, 0) << name_of(form);
    EXPECT_DOUBLE_EQ(one.compute_s, 3 * forward_flops(preset("medium"), 512, 1024) / 1e15);
    if (form == RankForm::kTensor) continue;  // medium has 16 heads
    EXPECT_DOUBLE_EQ(step(form, 64, true).tokens, 512 * 1024) << "64 ranks are those of the batch";
  }
}

TEST_F(ScalingTest, SharesFallWithRanksAndRiseWithTheLink) {
  RankRates faster = kRates;
  faster.link_bytes_per_s *= 2;
  for (const RankForm form : kAll<RankForm>) {
    for (const bool is_weak : {false, true}) {
      for (int n = 2; n <= 1024; n *= 2) {
        const ScaledStep s = step(form, n, is_weak);
        if (!s.is_possible) continue;
        EXPECT_LE(s.efficiency(), step(form, n / 2, is_weak).efficiency() + 1e-12);
        EXPECT_LE(s.efficiency(), step(form, n, is_weak, faster).efficiency() + 1e-12);
      }
    }
  }
}

// Backward computes two thirds of 3·F/(N·R); sums take 2·(N−1)/N·2·P/W.
TEST_F(ScalingTest, DataParallelIsHiddenUntilItsClosedForm) {
  const double p = static_cast<double>(parameter_formula(preset("medium")));
  const double flops = forward_flops(preset("medium"), 512, 1024);
  const int bound = static_cast<int>(1 + flops * 5e10 / (2 * p * 1e15));
  ASSERT_GT(bound, 8);
  const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(bound)));
  EXPECT_EQ(step(RankForm::kData, even).exposed_s, 0);
  EXPECT_GT(step(RankForm::kData, 2 * even).exposed_s, 0);
  const Table bounds = bounds_table(preset("medium"), {.batch = 512, .context = 1024}, kRates);
  EXPECT_EQ(cell(bounds, "data parallel", "strong", "hidden_until"), Json(even))
      << "512 sequences are divided evenly";
  EXPECT_EQ(cell(bounds, "data parallel", "strong", "end"), Json("512 sequences"));
}

TEST_F(ScalingTest, WhatCannotBeDividedHasNoStep) {
  EXPECT_FALSE(step(RankForm::kTensor, 32).is_possible) << "medium has 16 heads";
  EXPECT_TRUE(step(RankForm::kTensor, 16).is_possible);
  EXPECT_FALSE(step(RankForm::kSharded, 1024).is_possible) << "512 sequences";
  EXPECT_FALSE(step(RankForm::kData, 3).is_possible) << "which three ranks do not share evenly";
  EXPECT_TRUE(step(RankForm::kSharded, 1024, true).is_possible);
  EXPECT_TRUE(step(RankForm::kMesh, 1024).is_possible) << "128 replicas of 8";
  ModelConfig odd = preset("medium");
  odd.heads = 6;
  EXPECT_EQ(mesh_width(odd), 2);
}

TEST_F(ScalingTest, TheLinkBetweenHostsIsThatOfGroupsBeyondOne) {
  RankRates slow = kRates;
  slow.between_bytes_per_s = 1e9;
  for (const RankForm form : kAll<RankForm>) {
    EXPECT_EQ(step(form, 8, false, slow).exposed_s, step(form, 8).exposed_s) << name_of(form);
  }
  EXPECT_GT(step(RankForm::kSharded, 16, false, slow).exposed_s,
            step(RankForm::kSharded, 16).exposed_s);
  // The sums of activations stay inside a host.
  RankRates fast = kRates;
  fast.between_bytes_per_s = 1e15;
  EXPECT_NEAR(step(RankForm::kMesh, 64, true, fast).exposed_s,
              step(RankForm::kMesh, 8, true).exposed_s, 1e-12);
}

TEST_F(ScalingTest, TheTablesHaveAsManyRanksAsTheySay) {
  const Table strong =
      scaling_table(preset("medium"), {.batch = 512, .context = 1024}, kRates, false);
  ASSERT_EQ(strong.rows.size(), 11u);
  const auto& last = strong.rows.back();
  EXPECT_EQ(last[0], Json(1024));
  EXPECT_TRUE(last[strong.index_of("data_percent").value()].is_null());
  EXPECT_DOUBLE_EQ(strong.rows[5][strong.index_of("sharded_percent").value()].as_double(),
                   100 * step(RankForm::kSharded, 32).efficiency());
}

// The page's closed form of what shard=1 saves, beside the peaks of the programs.
TEST_F(ScalingTest, APeakFallsByLessThanItsStates) {
  ops::register_all();
  const ExplainInput input{.model = preset("small"), .shape = {.batch = 4, .context = 64}};
  RunSpec run{
      .model = input.model, .shape = input.shape, .mode = Mode::kStep, .ops = Granularity::kFused};
  run.parallel.ranks = 2;
  const auto peak = [&](int shard) {
    run.parallel.shard = shard;
    return static_cast<double>(predict_memory(run, {}).map.peak_bytes);
  };
  double states = NAN, falls = NAN;
  const Table table = explain(topic_named("data-parallel"), input).front();
  for (const auto& row : table.rows) {
    const std::string& what = row[0].as_string();
    if (what == "2 ranks: shard=1 saves on each") states = row[4].as_double();
    if (what.starts_with("2 ranks: shard=1 lowers the peak")) falls = row[4].as_double();
  }
  // The difference is the part of a sum under way, of the largest tensor at most.
  const double largest_part = 4.0 * 10000 * 768 / 2;
  EXPECT_LE(peak(0) - peak(1), falls);
  EXPECT_GE(peak(0) - peak(1), falls - largest_part);
  EXPECT_LT(peak(0) - peak(1), 0.6 * states);
}

}  // namespace
}  // namespace tracestep

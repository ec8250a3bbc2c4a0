// How the CPU cuts a product, for many shapes.
#include "planning/cpu_plans.h"

#include <array>
#include <utility>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

constexpr std::int64_t kSizes[] = {2, 7, 33, 128, 512, 768, 3072, 10000, 50257};

template <class F>
void for_plans(const F& f) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t m : kSizes) {
      for (const std::int64_t n : kSizes) {
        for (const std::int64_t k : kSizes) {
          for (const auto& [batch, threads] : {std::pair{1, 1}, {1, 2}, {1, 16}, {48, 16}}) {
            SCOPED_TRACE(testing::Message() << batch << " of " << m << 'x' << n << 'x' << k
                                            << " on " << threads << " threads");
            f(plan_gemm(batch, m, n, k, dtype, dtype, threads), dtype);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(CpuPlansTest, BlocksCoverAProductOnce) {
  for_plans([](const GemmPlan& plan, DType dtype) {
    const auto covers = [](std::int64_t blocks, std::int64_t block, std::int64_t all) {
      return blocks * block >= all && (blocks - 1) * block < all;
    };
    EXPECT_TRUE(covers(plan.blocks_m, plan.block_m, plan.m));
    EXPECT_TRUE(covers(plan.blocks_n, plan.block_n, plan.n));
    EXPECT_TRUE(covers(plan.blocks_k, plan.block_k, plan.k));
    EXPECT_LE(plan.splits, plan.blocks_k);
    EXPECT_EQ(plan.block_k, plan.strip_k * (dtype == DType::kBF16 ? 2 : 1));
    EXPECT_EQ(plan.block_k % (dtype == DType::kBF16 ? 32 : 8), 0);  // whole tiles
  });
}

TEST(CpuPlansTest, WhatThreadsShareIsBounded) {
  for_plans([](const GemmPlan& plan, DType) {
    constexpr std::int64_t kMost = (std::int64_t{8} << 20) / 4;
    EXPECT_LE(plan.shared_a_floats(), kMost);
    EXPECT_LE(plan.shared_b_floats(), kMost);
    EXPECT_LE(plan.kept_sums(), 2 * kMost);
    EXPECT_EQ(plan.shares_a, plan.shared_a_floats() > 0);
    EXPECT_EQ(plan.shares_b, plan.shared_b_floats() > 0);
    // Else nobody would gain.
    EXPECT_TRUE(!plan.shares_a || plan.blocks_n > 1);
    EXPECT_TRUE(!plan.shares_b || plan.blocks_m > 1);
    EXPECT_FALSE(plan.shares_a && plan.shares_b);
    for (const auto& [panel, blocks] : {std::pair{plan.panel_blocks, plan.blocks_m},
                                        {plan.panel_blocks_n, plan.blocks_n},
                                        {plan.panel_blocks_k, plan.blocks_k}}) {
      EXPECT_GE(panel, 1);
      EXPECT_LE(panel, blocks);
    }
    // Parts of K are whole within a panel.
    EXPECT_TRUE(plan.splits == 1 || plan.panel_blocks_k == plan.blocks_k);
    // A packed block of a and its result stay in a cache of 2 MiB.
    EXPECT_LE(plan.packed_a() * 4, 1 << 20);
  });
}

TEST(CpuPlansTest, ProductsOfTrainingKeepSixteenThreadsBusy) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{512, 768, 768},
                                  {512, 3072, 768},
                                  {512, 768, 3072},
                                  {3072, 768, 512},
                                  {768, 3072, 512},
                                  {512, 10000, 768},
                                  {512, 768, 10000},
                                  {256, 576, 1536}}) {
      for (const int threads : {2, 4, 8, 16}) {
        const GemmPlan plan = plan_gemm(1, m, n, k, dtype, dtype, threads);
        const std::int64_t turns = (plan.jobs() + threads - 1) / threads * threads;
        EXPECT_LE(turns * 3, plan.jobs() * 4)
            << m << 'x' << n << 'x' << k << " in " << plan.jobs() << " jobs on " << threads;
        // What is packed twice or more is little beside the multiply-adds.
        EXPECT_GE(plan.block_m * plan.block_n, 32 * 64) << m << 'x' << n << 'x' << k;
      }
    }
  }
}

// What decides bits is the same for any number of threads.
TEST(CpuPlansTest, SumsOverKAreCutByShape) {
  for (const std::int64_t m : kSizes) {
    for (const std::int64_t n : kSizes) {
      for (const std::int64_t k : kSizes) {
        const GemmPlan one = plan_gemm(1, m, n, k, DType::kBF16, DType::kF32, 1);
        for (int threads = 2; threads <= 16; ++threads) {
          const GemmPlan plan = plan_gemm(1, m, n, k, DType::kBF16, DType::kF32, threads);
          ASSERT_EQ(plan.block_k, one.block_k);
          ASSERT_EQ(plan.strip_k, one.strip_k);
          ASSERT_EQ(plan.splits, one.splits);
        }
      }
    }
  }
}

// Nobody waits long for the last blocks: they are taken in parts, but for those that begin at once.
TEST(CpuPlansTest, LastBlocksOfManyAreTakenInParts) {
  for_plans([](const GemmPlan& plan, DType) {
    if (plan.tail_parts() == 1) {  // for few threads, and for products of few rows or columns
      EXPECT_EQ(plan.tail_blocks(100), 0);
      return;
    }
    EXPECT_TRUE(plan.shares_a || plan.shares_b);
    for (const auto& [blocks, in_parts] : {std::pair{8, 0}, {16, 0}, {20, 4}, {32, 16}, {99, 16}}) {
      EXPECT_EQ(plan.tail_blocks(blocks), in_parts);
    }
    EXPECT_LE(plan.tail_parts(), 4);
    EXPECT_TRUE(plan.tail_parts_m == 1 || plan.tail_parts_n == 1);
  });
}

TEST(CpuPlansTest, ManyThreadsShareWhatIsPackedAndTwoDoNot) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const GemmPlan wide = plan_gemm(1, 512, 3072, 768, dtype, dtype, 16);
    EXPECT_TRUE(wide.shares_a && !wide.shares_b) << "the smaller one";
    const GemmPlan tall = plan_gemm(1, 3072, 512, 768, dtype, dtype, 16);
    EXPECT_TRUE(tall.shares_b && !tall.shares_a) << "the smaller one";
    const GemmPlan deep = plan_gemm(1, 512, 768, 16384, dtype, dtype, 16);
    EXPECT_TRUE(deep.shares_a && deep.panel_blocks_k < deep.blocks_k) << "part of K at a time";
    EXPECT_FALSE(plan_gemm(1, 512, 768, 768, dtype, dtype, 2).shares_a);
    EXPECT_FALSE(plan_gemm(48, 128, 128, 64, dtype, dtype, 16).shares_a);
  }
}

TEST(CpuPlansTest, BlocksOfManyThreadsFollowFromTheShape) {
  for (const std::int64_t m : kSizes) {
    for (const std::int64_t n : kSizes) {
      const GemmPlan few = plan_gemm(1, m, n, 768, DType::kF32, DType::kF32, 4);
      if (m < 64 || n < 64) continue;
      for (const int threads : {5, 16, 32, 96}) {
        const GemmPlan plan = plan_gemm(1, m, n, 768, DType::kF32, DType::kF32, threads);
        EXPECT_EQ(plan.block_m, few.block_m);
        EXPECT_EQ(plan.block_n, few.block_n);
        EXPECT_EQ(plan.shared_floats(), few.shared_floats());
      }
    }
  }
}

}  // namespace
}  // namespace tracestep

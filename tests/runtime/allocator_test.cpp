#include "runtime/allocator.h"

#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tracestep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(OutOfMemoryTest, TheMessageSaysWhatWasAskedForWhatLivesAndTheLimit) {
  const OutOfMemory error("cpu", kGiB * 3 / 2, 16 * kGiB,
                          {{512, 8 * kGiB, {Category::kActivation, 3, "scores"}},
                           {1024, 4 * kGiB, {Category::kParameter, -1, "weight"}},
                           {2048, 2 * kGiB, {Category::kActivation, 4, "probabilities"}}},
                          {});
  EXPECT_STREQ(error.what(),
               "[cpu] out of memory: 1.50 GiB asked for, 14.00 GiB live, limit 16.00 GiB; held by "
               "activation 10.00 GiB (2 blocks), parameter 4.00 GiB (1 block)");
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(exit_code(error.code()), 4);
  EXPECT_EQ(error.requested_bytes(), kGiB * 3 / 2);
  EXPECT_EQ(error.limit_bytes(), 16 * kGiB);
}

TEST(OutOfMemoryTest, OnlyTheThreeLargestCategoriesAreNamed) {
  const OutOfMemory error("cpu", 1, 16,
                          {{0, 1, {Category::kInput, -1, ""}},
                           {0, 2, {Category::kGradient, -1, ""}},
                           {0, 3, {Category::kOptimizerState, -1, ""}},
                           {0, 4, {Category::kWorkspace, -1, ""}}},
                          {});
  EXPECT_THAT(error.hint(), StartsWith("held by workspace 4 B (1 block), optimizer_state"));
  EXPECT_THAT(error.hint(), EndsWith("gradient 2 B (1 block)"));
}

TEST(OutOfMemoryTest, WithoutALimitTheMachineIsAtItsEnd) {
  const OutOfMemory error("cpu", 1024, 0, {}, {.is_on_host = true});
  EXPECT_TRUE(error.lack().is_on_host);
  EXPECT_THAT(error.what(), HasSubstr("1.00 KiB asked for, 0 B live, and the machine has no more"));
  EXPECT_THAT(error.what(), HasSubstr("nothing is live"));
}

TEST(OutOfMemoryTest, TheLabelsOutliveTheProgramTheyCameFrom) {
  auto label = std::make_unique<std::string>("layers.0.attn.scores.a_long_name_on_the_heap");
  const std::string copy = *label;
  const OutOfMemory error("cpu", 1, 1, {{512, 1, {Category::kActivation, 0, *label}}}, {});
  *label = "overwritten............................................";
  label.reset();
  EXPECT_EQ(error.live()[0].tag.label, copy);
}

}  // namespace
}  // namespace tracestep

#include "backends/cpu/memory_source.h"

#include <cstring>

#include <gtest/gtest.h>

namespace tracestep::cpu {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(CpuMemorySourceTest, OnlyTouchedPagesAreResident) {
  HugePageSource source;
  EXPECT_EQ(source.resident_bytes(), 0);
  void* const block = source.map(64 * kMiB);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(source.resident_bytes(), 0) << "mapped, and nothing touched";
  std::memset(block, 1, 3 * kMiB);
  EXPECT_GE(source.resident_bytes(), 3 * kMiB);
  EXPECT_LE(source.resident_bytes(), 4 * kMiB) << "whole huge pages at most";
  source.unmap(block, 64 * kMiB);
  EXPECT_EQ(source.resident_bytes(), 0);
}

TEST(CpuMemorySourceTest, ASmallBlockTakesNoHugePage) {
  HugePageSource source;
  void* const block = source.map(5000);
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, 5000);
  EXPECT_GE(source.resident_bytes(), 5000);
  EXPECT_LE(source.resident_bytes(), kMiB / 4);
  source.unmap(block, 5000);
  EXPECT_EQ(source.resident_bytes(), 0);
}

TEST(CpuMemorySourceTest, TheProcessHoldsWhatItTouched) {
  const std::int64_t before = process_resident_bytes();
  ASSERT_GT(before, 0);
  HugePageSource source;
  void* const block = source.map(64 * kMiB);
  std::memset(block, 1, 32 * kMiB);
  const std::int64_t grown = process_resident_bytes() - before;
  EXPECT_GE(grown, source.resident_bytes());
  EXPECT_LE(grown, source.resident_bytes() + kMiB);
  source.unmap(block, 64 * kMiB);
}

}  // namespace
}  // namespace tracestep::cpu

#include "runtime/guarded_allocator.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sanitizer.h"
#include "runtime/test_sources.h"

namespace tracestep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A write the sanitizers do not see, as a library's or a device's would be.
__attribute__((no_sanitize("address"), noinline)) void poke(void* block, std::int64_t offset) {
  volatile std::uint8_t* const byte = static_cast<std::uint8_t*>(block) + offset;
  *byte = static_cast<std::uint8_t>(*byte ^ 0x10);
}

// The message of the DeviceError that `call` must throw.
std::string damage_seen_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no error";
}

class GuardedAllocatorTest : public testing::Test {
 protected:
  void* allocate(std::int64_t bytes, std::string_view label = "scores") {
    return allocator_.allocate(bytes, {Category::kActivation, 12, label});
  }

  HostSource source_;
  GuardedAllocator allocator_{"cpu", source_};
};

TEST_F(GuardedAllocatorTest, WhatIsAllocatedReadsAsNanInEveryFloatDtypeAndAsMinusOne) {
  void* const block = allocate(64);
  double f64 = 0;
  float f32 = 0;
  std::uint16_t half = 0;
  std::int64_t i64 = 0;
  std::memcpy(&f64, block, sizeof f64);
  std::memcpy(&f32, block, sizeof f32);
  std::memcpy(&half, block, sizeof half);
  std::memcpy(&i64, block, sizeof i64);
  EXPECT_TRUE(std::isnan(f64));
  EXPECT_TRUE(std::isnan(f32));
  EXPECT_EQ(half & 0x7F80, 0x7F80);  // bf16: all exponent bits
  EXPECT_NE(half & 0x007F, 0);
  EXPECT_EQ(half & 0x7C00, 0x7C00);  // f16
  EXPECT_EQ(i64, -1);
  allocator_.free(block);
}

TEST_F(GuardedAllocatorTest, EveryRequestedByteCanBeWritten) {
  for (std::int64_t bytes : {1, 2, 63, 64, 65, 511, 4096, 100'003}) {
    void* const block = allocate(bytes);
    EXPECT_EQ(address_of(block) % 64, 0U);
    std::memset(block, 0, static_cast<std::size_t>(bytes));
    allocator_.check_all();
    allocator_.free(block);
  }
  allocator_.trim();
  EXPECT_EQ(source_.mapped_bytes(), 0);
}

TEST_F(GuardedAllocatorTest, AnOverrunIsFoundAtEveryDistanceWithinTheZone) {
  for (std::int64_t bytes : {1, 100, 128, 1000}) {
    for (std::int64_t distance : {0, 1, 63, 64, 127, 319}) {
      void* const block = allocate(bytes);
      poke(block, bytes + distance);
      const std::string place = fmt::format("after its end, at offset {}", bytes + distance);
      EXPECT_THAT(damage_seen_by([&] { allocator_.check_all(); }), HasSubstr(place));
      EXPECT_THAT(damage_seen_by([&] { allocator_.free(block); }), HasSubstr(place));
    }
  }
}

TEST_F(GuardedAllocatorTest, AnUnderrunIsFoundAtEveryDistanceWithinTheZone) {
  for (std::int64_t distance : {1, 2, 64, 128, 320}) {
    void* const block = allocate(100);
    poke(block, -distance);
    EXPECT_THAT(damage_seen_by([&] { allocator_.free(block); }),
                HasSubstr(fmt::format("before its start, at offset -{}", distance)));
  }
}

TEST_F(GuardedAllocatorTest, TheMessageNamesTheBlockAndTheRangeOnBothSides) {
  void* const block = allocate(100);
  for (std::int64_t offset : {-16, -9, 100, 107}) poke(block, offset);
  EXPECT_EQ(damage_seen_by([&] { allocator_.free(block); }),
            "[cpu: free] \"scores\" (activation, node 12, 100 bytes) was written before its start, "
            "at offsets -16 to -9; after its end, at offsets 100 to 107");
  EXPECT_EQ(allocator_.stats().requested_bytes, 0) << "a damaged block is freed all the same";
  allocator_.check_all();  // reported once
}

TEST_F(GuardedAllocatorTest, AWriteAfterFreeIsFoundInQuarantine) {
  std::string label = "probabilities";
  void* const block = allocate(1000, label);
  allocator_.free(block);
  label = "overwritten..";
  poke(block, 999);
  const std::string what =
      "\"probabilities\" (activation, node 12, 1000 bytes, freed) was written after it was freed, "
      "at offset 999";
  EXPECT_THAT(damage_seen_by([&] { allocator_.check_all(); }), HasSubstr(what));
  EXPECT_THAT(damage_seen_by([&] { allocator_.trim(); }), HasSubstr(what));
  EXPECT_EQ(source_.mapped_bytes(), 0);
}

TEST_F(GuardedAllocatorTest, AWriteAfterFreeIsFoundWhenTheBlockLeavesTheQuarantine) {
  void* const block = allocate(1000);
  allocator_.free(block);
  poke(block, 0);
  allocator_.free(allocate(40 * kMiB, "pushes nothing out"));
  void* const large = allocate(30 * kMiB, "pushes both out");
  EXPECT_THAT(damage_seen_by([&] { allocator_.free(large); }),
              HasSubstr("\"scores\" (activation, node 12, 1000 bytes, freed)"));
  EXPECT_LE(allocator_.stats().reserved_bytes, 64 * kMiB);
}

TEST_F(GuardedAllocatorTest, AddressesAreNotUsedAgainWhileInQuarantine) {
  std::vector<void*> seen;
  for (int i = 0; i < 100; ++i) {
    void* const block = allocate(4096);
    EXPECT_THAT(seen, Not(testing::Contains(block)));
    seen.push_back(block);
    allocator_.free(block);
  }
}

TEST_F(GuardedAllocatorTest, ABlockBeyondTheQuarantineIsGivenBackAtOnce) {
  allocator_.free(allocate(65 * kMiB));
  EXPECT_EQ(source_.mapped_bytes(), 0);
}

TEST_F(GuardedAllocatorTest, ZonesCountAsReservedNeverAsRequested) {
  Recorder recorder({.spans = false, .memory = true});
  allocator_.set_recorder(&recorder);
  allocator_.set_limit(100);
  void* const block = allocate(100);
  EXPECT_EQ(allocator_.stats().requested_bytes, 100);
  EXPECT_EQ(allocator_.stats().allocated_bytes, 128);
  EXPECT_EQ(allocator_.stats().reserved_bytes, source_.mapped_bytes());
  EXPECT_GE(allocator_.stats().reserved_bytes, 128 + 2 * 128);
  EXPECT_THROW(allocate(1), OutOfMemory);
  ASSERT_EQ(allocator_.live().size(), 1U);
  EXPECT_EQ(allocator_.live()[0].address, address_of(block));
  allocator_.free(block);
  EXPECT_EQ(recorder.peak_requested_bytes(), 100);
  EXPECT_EQ(recorder.memory_events().back().live_requested_bytes, 0);
}

TEST_F(GuardedAllocatorTest, ADrySourceGetsTheQuarantineBackBeforeTheRequestFails) {
  source_.capacity = 2 * kMiB;
  allocator_.free(allocate(kMiB));
  EXPECT_NE(allocate(kMiB + 4096), nullptr);
  EXPECT_THROW(allocate(kMiB), OutOfMemory);
}

TEST_F(GuardedAllocatorTest, NoBytesAreNoBlockAndFreeingAStrangerIsABug) {
  EXPECT_EQ(allocate(0), nullptr);
  allocator_.free(nullptr);
  void* const block = allocate(8);
  allocator_.free(block);
  EXPECT_THROW(allocator_.free(block), std::logic_error);
}

TEST_F(GuardedAllocatorTest, DamageFoundAtTheVeryEndIsLogged) {
  testing::internal::CaptureStderr();
  {
    GuardedAllocator allocator("cpu", source_);
    poke(allocator.allocate(8, {Category::kWorkspace, 3, "packed"}), 8);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("\"packed\" (workspace, node 3, 8 bytes) was written after its end"));
}

#ifdef TRACESTEP_ASAN
TEST(GuardedAllocatorSanitizerTest, TheSanitizerSeesTouchesOfZonesAndFreedBlocks) {
  HostSource source;
  GuardedAllocator allocator("cpu", source);
  auto* const block = static_cast<char*>(allocator.allocate(1000, {}));
  allocator.check_all();
  EXPECT_TRUE(__asan_address_is_poisoned(block - 1));
  EXPECT_FALSE(__asan_address_is_poisoned(block + 999));
  EXPECT_TRUE(__asan_address_is_poisoned(block + 1000));
  allocator.free(block);
  allocator.check_all();
  EXPECT_TRUE(__asan_address_is_poisoned(block));
}
#endif

TEST(GuardedAllocatorOnADeviceTest, StrayWritesAreFoundByCopies) {
  CopiesSource source;
  GuardedAllocator allocator("cuda:0", source);
  void* const block = allocator.allocate(1000, {Category::kActivation, 12, "scores"});
  std::vector<std::uint16_t> values(500);
  source.copy_out(values.data(), block, 1000);
  EXPECT_THAT(values, testing::Each(0xFFFF));
  allocator.check_all();
  const std::uint8_t stray = 7;
  source.copy_in(static_cast<std::uint8_t*>(block) + 1003, &stray, 1);
  EXPECT_THAT(damage_seen_by([&] { allocator.free(block); }),
              HasSubstr("was written after its end, at offset 1003"));
  void* const other = allocator.allocate(8, {Category::kActivation, 13, "values"});
  allocator.free(other);
  source.copy_in(other, &stray, 1);
  EXPECT_THAT(damage_seen_by([&] { allocator.trim(); }), HasSubstr("after it was freed"));
}

TEST(GuardedAllocatorOnADeviceTest, AddressesWithoutMemoryAreRefused) {
  AddressSource source;
  try {
    make_guarded_allocator("cuda:0", source);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("[cuda:0] the guarded allocator"));
  }
}

}  // namespace
}  // namespace tracestep

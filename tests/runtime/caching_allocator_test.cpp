#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/allocator.h"
#include "runtime/sanitizer.h"
#include "runtime/test_sources.h"

namespace tracestep {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

class CachingAllocatorTest : public testing::Test {
 protected:
  void* allocate(std::int64_t bytes, const AllocationTag& tag = {}) {
    return allocator_->allocate(bytes, tag);
  }
  const AllocatorStats& stats() const { return allocator_->stats(); }

  AddressSource source_;
  std::unique_ptr<Allocator> allocator_ = make_caching_allocator("null", source_);
};

TEST_F(CachingAllocatorTest, AFreedBlockIsUsedAgain) {
  void* const first = allocate(3 * kMiB);
  allocator_->free(first);
  EXPECT_EQ(allocate(3 * kMiB), first);
  EXPECT_EQ(stats().map_count, 1);
  EXPECT_EQ(stats().allocation_count, 2);
}

TEST_F(CachingAllocatorTest, NoBytesAreNoBlock) {
  EXPECT_EQ(allocate(0), nullptr);
  allocator_->free(nullptr);
  EXPECT_EQ(stats().allocation_count, 0);
  EXPECT_EQ(stats().reserved_bytes, 0);
}

TEST_F(CachingAllocatorTest, SizesAreRoundedTo512BytesButCountedAsRequested) {
  void* const first = allocate(1);
  void* const second = allocate(513);
  EXPECT_EQ(address_of(second), address_of(first) + 512);
  EXPECT_EQ(stats().requested_bytes, 514);
  EXPECT_EQ(stats().allocated_bytes, 512 + 1024);
  EXPECT_EQ(stats().reserved_bytes, 2 * kMiB);
}

TEST_F(CachingAllocatorTest, SmallAndLargeBlocksLiveInSegmentsOfTheirOwn) {
  allocate(kMiB);
  EXPECT_EQ(stats().reserved_bytes, 2 * kMiB);
  allocate(kMiB + 1);
  EXPECT_EQ(stats().reserved_bytes, 22 * kMiB);
  allocate(kMiB);  // the rest of the small segment
  EXPECT_EQ(stats().reserved_bytes, 22 * kMiB);
  allocate(101 * kMiB);
  EXPECT_EQ(stats().reserved_bytes, (22 + 102) * kMiB);
}

TEST_F(CachingAllocatorTest, FreeNeighboursBecomeOneBlockInEveryOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    void* blocks[4];
    for (void*& block : blocks) block = allocate(5 * kMiB);
    for (int i : order) allocator_->free(blocks[i]);
    void* const whole = allocate(20 * kMiB);
    EXPECT_EQ(whole, *std::min_element(blocks, blocks + 4));
    allocator_->free(whole);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(stats().map_count, 1);
}

TEST_F(CachingAllocatorTest, TheSmallestHoleThatFitsIsTaken) {
  // Holes of 4, 2 and 3 MiB between blocks that stay.
  std::vector<void*> holes;
  for (std::int64_t size : {4, 2, 3}) {
    holes.push_back(allocate(size * kMiB));
    allocate(kMiB + 512);
  }
  for (void* hole : holes) allocator_->free(hole);
  EXPECT_EQ(allocate(2 * kMiB), holes[1]);
  EXPECT_EQ(allocate(2 * kMiB + 512), holes[2]);
  EXPECT_EQ(allocate(4 * kMiB), holes[0]);
}

TEST_F(CachingAllocatorTest, EqualHolesAreTakenOldestSegmentFirstWhereverSegmentsLie) {
  AddressSource downward(-(std::int64_t{1} << 40));
  const auto allocator = make_caching_allocator("null", downward);
  void* const first = allocator->allocate(20 * kMiB, {});
  void* const second = allocator->allocate(20 * kMiB, {});
  ASSERT_LT(second, first);
  allocator->free(second);
  allocator->free(first);
  EXPECT_EQ(allocator->allocate(20 * kMiB, {}), first);
}

TEST_F(CachingAllocatorTest, ASecondRoundOfTheSameStepMapsNothing) {
  const auto step = [&] {
    std::mt19937 generator(7);
    std::vector<void*> kept;
    for (int i = 0; i < 300; ++i) {
      const auto size = [&] { return static_cast<std::int64_t>(generator() % (6 * kMiB) + 1); };
      void* const temporary = allocate(size());
      kept.push_back(allocate(size()));
      allocator_->free(temporary);
    }
    const std::vector<void*> places = kept;
    for (; !kept.empty(); kept.pop_back()) allocator_->free(kept.back());
    return places;
  };
  step();
  const std::int64_t maps = stats().map_count;
  const auto second = step();
  EXPECT_EQ(step(), second) << "the same calls must find the same places";
  EXPECT_EQ(stats().map_count, maps);
  EXPECT_LT(static_cast<double>(stats().peak_reserved_bytes),
            1.15 * static_cast<double>(stats().peak_requested_bytes));
}

TEST_F(CachingAllocatorTest, TheLimitCountsRequestedBytesToTheByte) {
  allocator_->set_limit(10'000);
  allocate(1);
  void* const most = allocate(9'998);
  allocate(1);  // exactly at the limit, although the rounded sizes are beyond it
  EXPECT_GT(stats().allocated_bytes, 10'000);
  EXPECT_THROW(allocate(1), OutOfMemory);
  allocator_->free(most);
  EXPECT_THROW(allocate(9'999), OutOfMemory);
  EXPECT_NE(allocate(9'998), nullptr);
  allocator_->set_limit(5'000);  // below what lives
  EXPECT_THROW(allocate(1), OutOfMemory);
  allocator_->set_limit(0);
  EXPECT_NE(allocate(kMiB), nullptr);
}

TEST_F(CachingAllocatorTest, OutOfMemoryCarriesTheLiveSetAndLeavesTheAllocatorUsable) {
  allocator_->set_limit(8 * kMiB);
  void* const weight = allocate(5 * kMiB, {Category::kParameter, -1, "weight"});
  allocate(kMiB, {Category::kActivation, 7, "scores"});
  try {
    allocate(3 * kMiB, {Category::kTemporary, 8, "sum"});
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("[null] out of memory: 3.00 MiB asked for, 6.00 MiB live, "
                                        "limit 8.00 MiB; held by parameter 5.00 MiB"));
    ASSERT_EQ(error.live().size(), 2U);
    for (const LiveAllocation& block : error.live()) {
      EXPECT_EQ(block.tag.label, block.address == address_of(weight) ? "weight" : "scores");
    }
  }
  allocator_->free(weight);
  EXPECT_NE(allocate(7 * kMiB), nullptr);
}

TEST_F(CachingAllocatorTest, ADrySourceGetsCachedSegmentsBackBeforeTheRequestFails) {
  source_.capacity = 40 * kMiB;
  allocator_->free(allocate(20 * kMiB));
  allocator_->free(allocate(100));  // a cached small segment
  EXPECT_NE(allocate(40 * kMiB), nullptr);
  EXPECT_EQ(stats().reserved_bytes, 40 * kMiB);
  try {
    allocate(1);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.limit_bytes(), 0);
    EXPECT_EQ(error.requested_bytes(), 1);
    EXPECT_EQ(error.live().size(), 1U);
  }
}

TEST_F(CachingAllocatorTest, ANearlyDrySourceIsAskedForASmallerSegment) {
  source_.capacity = 6 * kMiB;
  EXPECT_NE(allocate(5 * kMiB), nullptr);
  EXPECT_EQ(stats().reserved_bytes, 6 * kMiB);
}

TEST_F(CachingAllocatorTest, AnAbsurdRequestIsOutOfMemoryAndANegativeOneABug) {
  EXPECT_THROW(allocate(std::numeric_limits<std::int64_t>::max()), OutOfMemory);
  EXPECT_THROW(allocate(-1), std::logic_error);
}

TEST_F(CachingAllocatorTest, FreeingTwiceOrAStrangerIsABug) {
  void* const block = allocate(100);
  allocator_->free(block);
  EXPECT_THROW(allocator_->free(block), std::logic_error);
  int stranger = 0;
  EXPECT_THROW(allocator_->free(&stranger), std::logic_error);
  void* const other = allocate(1024);
  EXPECT_THROW(allocator_->free(static_cast<char*>(other) + 512), std::logic_error);
}

TEST_F(CachingAllocatorTest, TrimGivesBackWhollyFreeSegmentsOnly) {
  void* const large = allocate(20 * kMiB);
  void* const small = allocate(100);
  allocator_->free(allocate(200));
  allocator_->free(large);
  allocator_->trim();
  EXPECT_EQ(source_.mapping_count(), 1U);
  EXPECT_EQ(stats().reserved_bytes, 2 * kMiB);
  EXPECT_EQ(stats().peak_reserved_bytes, 22 * kMiB);
  allocator_->free(small);
  allocator_->trim();
  EXPECT_EQ(source_.mapped_bytes(), 0);
}

TEST_F(CachingAllocatorTest, ThePeakIsTheMostThatLivedSinceItWasReset) {
  void* const large = allocate(3 * kMiB);
  void* const small = allocate(100);
  EXPECT_EQ(stats().peak_requested_bytes, 3 * kMiB + 100);
  allocator_->free(large);
  EXPECT_EQ(stats().peak_requested_bytes, 3 * kMiB + 100);
  allocator_->reset_peak();
  EXPECT_EQ(stats().peak_requested_bytes, 100);
  allocator_->free(small);
  allocate(60);
  EXPECT_EQ(stats().peak_requested_bytes, 100);
}

TEST_F(CachingAllocatorTest, EveryEventIsRecordedWithItsTag) {
  Recorder recorder({.spans = false, .memory = true});
  allocator_->set_recorder(&recorder);
  void* const block = allocate(1000, {Category::kActivation, 5, "scores"});
  allocator_->set_limit(1500);
  EXPECT_THROW(allocate(501, {Category::kWorkspace, 6, ""}), OutOfMemory);
  allocator_->free(block);
  allocator_->trim();

  const auto& events = recorder.memory_events();
  ASSERT_EQ(events.size(), 5U);
  const auto expect = [&](std::size_t i, MemoryAction action, Category category, std::int32_t node,
                          std::uint64_t address, std::int64_t requested, std::int64_t rounded,
                          std::int64_t live) {
    SCOPED_TRACE(i);
    EXPECT_EQ(events[i].action, action);
    EXPECT_EQ(events[i].category, category);
    EXPECT_EQ(events[i].node, node);
    EXPECT_EQ(events[i].address, address);
    EXPECT_EQ(events[i].requested_bytes, requested);
    EXPECT_EQ(events[i].rounded_bytes, rounded);
    EXPECT_EQ(events[i].live_requested_bytes, live);
    EXPECT_GE(events[i].time_ns, i == 0 ? 0 : events[i - 1].time_ns);
  };
  const std::uint64_t at = address_of(block);
  expect(0, MemoryAction::kSegmentAlloc, Category::kActivation, 5, at, 0, 2 * kMiB, 0);
  expect(1, MemoryAction::kAlloc, Category::kActivation, 5, at, 1000, 1024, 1000);
  expect(2, MemoryAction::kOom, Category::kWorkspace, 6, 0, 501, 501, 1000);
  expect(3, MemoryAction::kFree, Category::kActivation, 5, at, 1000, 1024, 0);
  expect(4, MemoryAction::kSegmentFree, Category::kTemporary, kWholeStep, at, 0, 2 * kMiB, 0);
  EXPECT_EQ(recorder.count_of(Counter::kAllocations), 1);
  EXPECT_EQ(recorder.count_of(Counter::kSegmentAllocations), 1);
}

TEST_F(CachingAllocatorTest, ADestroyedAllocatorReturnsLeakedBlocksWithoutItsRecorder) {
  AddressSource source;
  {
    const auto allocator = make_caching_allocator("null", source);
    {
      Recorder recorder({.spans = false, .memory = true});
      allocator->set_recorder(&recorder);
      allocator->allocate(100, {});
    }
    EXPECT_EQ(allocator->stats().requested_bytes, 100);
  }
  EXPECT_EQ(source.mapped_bytes(), 0);
}

// Random calls against the obvious model: a map of live blocks.
TEST_F(CachingAllocatorTest, RandomCallsNeverOverlapAndAccountExactly) {
  Recorder recorder({.spans = false, .memory = true});
  allocator_->set_recorder(&recorder);
  std::mt19937_64 generator(11);
  std::map<std::uint64_t, std::int64_t> model;
  std::int64_t requested = 0, peak = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (model.empty() || generator() % 100 < 52) {
      const auto bytes = static_cast<std::int64_t>(generator() % (1U << (generator() % 26)) + 1);
      const std::uint64_t address = address_of(allocate(bytes));
      ASSERT_EQ(address % 512, 0U);
      const auto [at, added] = model.emplace(address, bytes);
      ASSERT_TRUE(added);
      if (at != model.begin()) {
        const auto before = std::prev(at);
        ASSERT_LE(before->first + static_cast<std::uint64_t>(before->second), address);
      }
      if (const auto after = std::next(at); after != model.end()) {
        ASSERT_LE(address + static_cast<std::uint64_t>(bytes), after->first);
      }
      requested += bytes;
    } else {
      const auto index = static_cast<std::ptrdiff_t>(generator() % model.size());
      const auto victim = std::next(model.begin(), index);
      requested -= victim->second;
      allocator_->free(reinterpret_cast<void*>(victim->first));
      model.erase(victim);
    }
    if (i % 997 == 0) allocator_->trim();
    peak = std::max(peak, requested);
    ASSERT_EQ(stats().requested_bytes, requested);
    ASSERT_EQ(stats().peak_requested_bytes, peak);
    ASSERT_EQ(stats().reserved_bytes, source_.mapped_bytes());
    ASSERT_LE(stats().allocated_bytes, stats().reserved_bytes);
  }
  const auto live = allocator_->live();
  ASSERT_EQ(live.size(), model.size());
  EXPECT_TRUE(std::ranges::is_sorted(live, {}, &LiveAllocation::address));
  for (const LiveAllocation& block : live) EXPECT_EQ(block.requested_bytes, model[block.address]);
  for (const auto& [address, bytes] : model) allocator_->free(reinterpret_cast<void*>(address));
  EXPECT_EQ(stats().allocated_bytes, 0);
  allocator_->trim();
  EXPECT_EQ(stats().reserved_bytes, 0) << "free blocks were not merged into whole segments";
  EXPECT_EQ(recorder.peak_requested_bytes(), peak);
  std::int64_t balance = 0, segments = 0;
  for (const MemoryEvent& event : recorder.memory_events()) {
    if (event.action == MemoryAction::kAlloc) balance += event.rounded_bytes;
    if (event.action == MemoryAction::kFree) balance -= event.rounded_bytes;
    if (event.action == MemoryAction::kSegmentAlloc) segments += event.rounded_bytes;
    if (event.action == MemoryAction::kSegmentFree) segments -= event.rounded_bytes;
  }
  EXPECT_EQ(balance, 0);
  EXPECT_EQ(segments, 0);
}

TEST(CachingAllocatorOnHostTest, EveryRequestedByteCanBeWritten) {
  HostSource source;
  const auto allocator = make_caching_allocator("cpu", source);
  std::vector<void*> blocks;
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t bytes : {1, 511, 513, 70'001, 3'000'000}) {
      blocks.push_back(allocator->allocate(bytes, {}));
      std::memset(blocks.back(), round, static_cast<std::size_t>(bytes));
    }
    for (; !blocks.empty(); blocks.pop_back()) allocator->free(blocks.back());
    if (round == 1) allocator->trim();
  }
}

#ifdef TRACESTEP_ASAN
TEST(CachingAllocatorOnHostSanitizerTest, TheSanitizerSeesTouchesOfFreeBytes) {
  HostSource source;
  const auto allocator = make_caching_allocator("cpu", source);
  auto* const block = static_cast<char*>(allocator->allocate(1000, {}));
  EXPECT_FALSE(__asan_address_is_poisoned(block + 999));
  EXPECT_TRUE(__asan_address_is_poisoned(block + 1000));
  allocator->free(block);
  EXPECT_TRUE(__asan_address_is_poisoned(block));
}
#endif

}  // namespace
}  // namespace tracestep

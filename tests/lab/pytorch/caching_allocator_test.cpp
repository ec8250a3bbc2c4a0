#include "lab/pytorch/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Allocates the sizes in turn; a negative one frees that, counted from 1.
class Sequence {
 public:
  explicit Sequence(std::vector<std::int64_t> sizes, const AllocatorSettings& settings = {},
                    std::int64_t limit = kNoLimitBytes)
      : allocator(settings, limit, limit != kNoLimitBytes) {
    std::vector<std::optional<CachingAllocator::BlockId>> blocks;
    for (std::int64_t size : sizes) {
      if (size < 0) {
        allocator.free(*blocks[static_cast<std::size_t>(-size - 1)]);
      } else {
        blocks.push_back(allocator.allocate(size));
        failures += !blocks.back();
      }
    }
  }

  // Allocated now and at most, reserved now.
  std::vector<std::int64_t> bytes() const {
    const CachingAllocator::Statistics& s = allocator.statistics();
    return {s.allocated_bytes, s.most_allocated_bytes, s.reserved_bytes};
  }

  CachingAllocator allocator;
  int failures = 0;
};

using ::testing::ElementsAre;

TEST(CachingAllocator, RoundsToTheUnitAndTakesASmallSegment) {
  const Sequence s({1});
  EXPECT_THAT(s.bytes(), ElementsAre(512, 512, 2 * kMiB));
  EXPECT_EQ(s.allocator.unused().largest_bytes, 2096640);
}

TEST(CachingAllocator, SharesASmallSegment) {
  EXPECT_THAT(Sequence({kMiB, kMiB, 512}).bytes(), ElementsAre(2097664, 2097664, 4 * kMiB));
}

TEST(CachingAllocator, TakesALargeSegmentFromOneByteAboveOneMebibyte) {
  const Sequence s({kMiB + 1});
  EXPECT_THAT(s.bytes(), ElementsAre(1049088, 1049088, 20 * kMiB));
  EXPECT_EQ(s.allocator.unused().bytes, 19922432);
}

TEST(CachingAllocator, FillsALargeSegment) {
  const Sequence s({10 * kMiB - 1, 10 * kMiB});
  EXPECT_THAT(s.bytes(), ElementsAre(20 * kMiB, 20 * kMiB, 20 * kMiB));
  EXPECT_EQ(s.allocator.unused().pieces, 0);
}

TEST(CachingAllocator, CountsAllOfABlockThatIsNotSplit) {
  EXPECT_THAT(Sequence({11 * kMiB, -1, 21 * kMiB / 2}).bytes(),
              ElementsAre(21 * kMiB / 2, 12 * kMiB, 12 * kMiB));
}

TEST(CachingAllocator, SplitsWhatWasFreed) {
  EXPECT_THAT(Sequence({30 * kMiB, -1, 12 * kMiB, 18 * kMiB}).bytes(),
              ElementsAre(30 * kMiB, 30 * kMiB, 30 * kMiB));
}

TEST(CachingAllocator, TakesAnotherSegmentWhereNoPieceIsLargeEnough) {
  const Sequence s({8 * kMiB, 8 * kMiB, -1, 9 * kMiB});
  EXPECT_THAT(s.bytes(), ElementsAre(17 * kMiB, 17 * kMiB, 40 * kMiB));
  EXPECT_EQ(s.allocator.unused().pieces, 3);
  EXPECT_EQ(s.allocator.unused().largest_bytes, 11 * kMiB);
}

TEST(CachingAllocator, GivesFreeSegmentsBackBeforeItFails) {
  const Sequence s({40 * kMiB, -1, 50 * kMiB}, {}, 64 * kMiB);
  EXPECT_THAT(s.bytes(), ElementsAre(50 * kMiB, 50 * kMiB, 50 * kMiB));
  EXPECT_EQ(s.allocator.statistics().retries, 1);
  EXPECT_EQ(Sequence({40 * kMiB, 50 * kMiB}, {}, 64 * kMiB).failures, 1);
}

TEST(CachingAllocator, KeepsLargeBlocksWholeWithMaxSplit) {
  const Sequence s({256 * kMiB, -1, 40 * kMiB},
                   parse_allocator_settings("s", "max_split_size_mb:128"));
  EXPECT_THAT(s.bytes(), ElementsAre(40 * kMiB, 256 * kMiB, 296 * kMiB));
  EXPECT_EQ(s.allocator.unused().largest_bytes, 256 * kMiB);
}

TEST(CachingAllocator, JoinsPagesOfAnExpandableSegment) {
  const AllocatorSettings expandable = parse_allocator_settings("s", "expandable_segments:True");
  // Three pieces of 30 MiB that lie side by side hold 85 MiB; apart, they hold none.
  const std::vector<std::int64_t> sizes{30 * kMiB, 30 * kMiB, 30 * kMiB, -1, -2, -3, 85 * kMiB};
  EXPECT_EQ(Sequence(sizes, expandable).bytes()[2], 100 * kMiB);
  EXPECT_EQ(Sequence(sizes).bytes()[2], 176 * kMiB);
}

TEST(CachingAllocator, UnmapsFreePagesWhereMemoryRunsOut) {
  const AllocatorSettings expandable = parse_allocator_settings("s", "expandable_segments:True");
  const Sequence s({60 * kMiB, kMiB, -1, -2, 1, 60 * kMiB, 21 * kMiB}, expandable, 100 * kMiB);
  EXPECT_EQ(s.failures, 0);
  EXPECT_LE(s.allocator.statistics().reserved_bytes, 102 * kMiB);
}

TEST(CachingAllocator, KeepsStreamsApart) {
  CachingAllocator allocator(AllocatorSettings{});
  allocator.free(*allocator.allocate(30 * kMiB, 1));
  allocator.allocate(30 * kMiB, 2);
  EXPECT_EQ(allocator.statistics().reserved_bytes, 60 * kMiB);
}

TEST(CachingAllocator, DividesPowersOfTwo) {
  const auto rounded = [](const char* settings, std::int64_t bytes) {
    return CachingAllocator(parse_allocator_settings("s", settings)).rounded(bytes);
  };
  EXPECT_EQ(rounded("roundup_power2_divisions:4", 1200 * 1024), 1280 * 1024);
  EXPECT_EQ(rounded("roundup_power2_divisions:4", 2048), 2048);
  EXPECT_EQ(rounded("roundup_power2_divisions:[256:1,512:2,>:8]", 300 * kMiB), 300 * kMiB);
  EXPECT_EQ(rounded("roundup_power2_divisions:[256:1,512:2,>:8]", 700 * kMiB), 704 * kMiB);
}

TEST(AllocatorSettings, NameWhatPyTorchHas) {
  const AllocatorSettings s = parse_allocator_settings(
      "s", "backend:native,expandable_segments:True,garbage_collection_threshold:0.8");
  EXPECT_TRUE(s.expandable_segments);
  EXPECT_EQ(s.gc_threshold, 0.8);
  for (const char* wrong :
       {"expandable_segments", "expandable_segments:true", "max_split_size_mb:20", "no_key:1",
        "max_split_size_mb:999999999999999999999", "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256", "roundup_power2_divisions:[x:1]", ":",
        "max_split_size_mb:64;", "roundup_power2_divisions:[1:1]x", "roundup_power2_divisions:["}) {
    EXPECT_THROW(parse_allocator_settings("s", wrong), Error) << wrong;
  }
  EXPECT_NO_THROW(parse_allocator_settings("s", ""));
}

}  // namespace
}  // namespace tracestep

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
  EXPECT_EQ(rounded("roundup_power2_divisions:[256:1,512:2,>:8]", 700 * kMiB), 768 * kMiB);
  EXPECT_EQ(rounded("roundup_power2_divisions:[256:1,512:2,>:8]", 1100 * kMiB), 1152 * kMiB);
  EXPECT_EQ(rounded("roundup_power2_divisions:[65536:4]", 40'000 * kMiB), 40'960 * kMiB);
}

// Sequences that ran on an H200 with PyTorch 2.11 (tools/soak/pytorch_memory.py allocator).
struct OnCard {
  const char* settings;
  std::uint64_t seed;
  int count, largest;
  std::int64_t limit_mib, most_allocated, most_reserved;
  std::uint64_t hash;  // of allocated, reserved, retries and failures after every event
};
constexpr OnCard kOnCard[] = {
    {"", 1, 500, 24, 0, 52272128, 73400320, 0x947c57ab044e2b65u},
    {"", 2, 500, 27, 0, 217656832, 341835776, 0x41cc5f3ba0495f65u},
    {"expandable_segments:True", 1, 500, 24, 0, 52116992, 88080384, 0x6dc3500598a4d165u},
    {"expandable_segments:True", 2, 500, 27, 0, 217315328, 297795584, 0xb5414d7566825965u},
    {"roundup_power2_divisions:4", 1, 500, 24, 0, 54019584, 73400320, 0x730b8afb2f9e6365u},
    {"roundup_power2_divisions:4", 2, 500, 27, 0, 234840064, 402653184, 0xc7dc03f8d0a3c165u},
    {"large_segment_size_mb:40", 1, 500, 24, 0, 52272128, 77594624, 0x90fded6b3dfbab65u},
    {"large_segment_size_mb:40", 2, 500, 27, 0, 217315328, 264241152, 0xf4eb6d938fb0dd65u},
    {"", 3, 400, 29, 900, 703117312, 822083584, 0xf9f008badc8dfbb6u},
    {"", 4, 400, 27, 260, 189476864, 226492416, 0x2984289d2d2bbf67u},
    {"", 6, 400, 28, 400, 370377216, 390070272, 0x616c143d7ef44872u},
    {"", 5, 300, 24, 32, 24716288, 25165824, 0x1d175380243ce8b6u},
    {"expandable_segments:True", 3, 400, 29, 900, 828593664, 864026624, 0x648a9b915446c73cu},
    {"expandable_segments:True", 4, 400, 27, 260, 246567936, 276824064, 0x21c59def190285f7u},
    {"expandable_segments:True", 6, 400, 28, 400, 396969984, 423624704, 0x425a6849303d6161u},
    {"expandable_segments:True", 5, 300, 24, 32, 23820288, 27262976, 0xf381816bc41e80b6u},
    {"max_split_size_mb:64", 3, 400, 29, 900, 835555328, 924844032, 0xe84fe726b190ba25u},
    {"max_split_size_mb:64", 4, 400, 27, 260, 249433600, 270532608, 0x88ed2d7805bcfb83u},
    {"max_split_size_mb:64", 6, 400, 28, 400, 391933952, 419430400, 0xf1a698386c68e27eu},
    {"max_split_size_mb:64", 5, 300, 24, 32, 24716288, 25165824, 0x1d175380243ce8b6u},
    {"garbage_collection_threshold:0.6", 3, 400, 29, 900, 703117312, 784334848,
     0xa982d3ee17778db6u},
    {"garbage_collection_threshold:0.6", 4, 400, 27, 260, 189476864, 226492416,
     0x2984289d2d2bbf67u},
    {"garbage_collection_threshold:0.6", 6, 400, 28, 400, 370377216, 390070272,
     0x616c143d7ef44872u},
    {"garbage_collection_threshold:0.6", 5, 300, 24, 32, 24716288, 25165824, 0xbc96675a5cbce8b6u},
    {"expandable_segments:True,garbage_collection_threshold:0.6", 3, 400, 29, 900, 828593664,
     864026624, 0x648a9b915446c73cu},
    {"expandable_segments:True,garbage_collection_threshold:0.6", 4, 400, 27, 260, 246567936,
     276824064, 0x21c59def190285f7u},
    {"expandable_segments:True,garbage_collection_threshold:0.6", 6, 400, 28, 400, 396969984,
     423624704, 0x425a6849303d6161u},
    {"expandable_segments:True,garbage_collection_threshold:0.6", 5, 300, 24, 32, 23820288,
     27262976, 0xf381816bc41e80b6u},
    {"max_split_size_mb:64,garbage_collection_threshold:0.8", 3, 400, 29, 900, 833458176, 933232640,
     0xa936391ae51b24e5u},
    {"max_split_size_mb:64,garbage_collection_threshold:0.8", 4, 400, 27, 260, 249433600, 270532608,
     0x00e55900e2f4d4ccu},
    {"max_split_size_mb:64,garbage_collection_threshold:0.8", 6, 400, 28, 400, 391933952, 402653184,
     0x5010a96c00a4b48eu},
    {"max_split_size_mb:64,garbage_collection_threshold:0.8", 5, 300, 24, 32, 24716288, 25165824,
     0x1d175380243ce8b6u},
};

// Draws as the script does.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
  }

 private:
  std::uint64_t state_;
};

TEST(CachingAllocator, DoesWhatPyTorchDidOnACard) {
  for (const OnCard& card : kOnCard) {
    SCOPED_TRACE(testing::Message() << card.settings << " seed " << card.seed);
    const std::int64_t limit = card.limit_mib == 0 ? kNoLimitBytes : card.limit_mib * kMiB;
    CachingAllocator allocator(parse_allocator_settings("s", card.settings), limit, true);
    Draws draws(card.seed);
    std::vector<std::size_t> alive;
    std::vector<std::optional<CachingAllocator::BlockId>> blocks;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < card.count; ++i) {
      bool has_failed = false;
      const std::uint64_t chance = 45 + std::min<std::uint64_t>(alive.size(), 40) / 4;
      if (!alive.empty() && draws.below(100) < chance) {
        const auto at = alive.begin() + static_cast<std::ptrdiff_t>(draws.below(alive.size()));
        if (blocks[*at]) allocator.free(*blocks[*at]);
        alive.erase(at);
      } else {
        const std::uint64_t bits = 1 + draws.below(static_cast<std::uint64_t>(card.largest));
        const auto bytes = static_cast<std::int64_t>(1 + draws.below(std::uint64_t{1} << bits));
        alive.push_back(blocks.size());
        blocks.push_back(allocator.allocate(bytes));
        has_failed = !blocks.back();
      }
      const CachingAllocator::Statistics& s = allocator.statistics();
      for (std::int64_t value :
           {s.allocated_bytes, s.reserved_bytes, s.retries, std::int64_t{has_failed}}) {
        hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
      }
    }
    EXPECT_EQ(allocator.statistics().most_allocated_bytes, card.most_allocated);
    EXPECT_EQ(allocator.statistics().most_reserved_bytes, card.most_reserved);
    EXPECT_EQ(hash, card.hash);
  }
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

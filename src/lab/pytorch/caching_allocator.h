// PyTorch's caching allocator of CUDA memory, replayed: which blocks it would split, join, keep and
// give back, so that what it reserves is known without a device. The rules are those of
// CUDACachingAllocator.cpp in PyTorch 2.11; what other versions changed is a setting.
//
// Rules. A size is rounded up to 512 bytes. Up to 1 MiB it comes from the small pool, else from the
// large one. The smallest free block of the stream that is large enough is taken, and split if the
// rest is large enough. A miss takes a segment from the driver: 2 MiB for small sizes, 20 MiB below
// 10 MiB, else the next multiple of 2 MiB. Freed blocks join their free neighbours of one segment.
// Where the driver has no more, whole free segments go back, and it is asked again. An expandable
// segment is address space whose pages are mapped where a block needs them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace tracestep {

inline constexpr std::int64_t kNoLimitBytes = std::numeric_limits<std::int64_t>::max() / 4;

struct AllocatorSettings {
  bool expandable_segments = false;
  std::int64_t max_split_bytes = kNoLimitBytes;
  std::int64_t non_split_rounding_bytes = std::int64_t{20} << 20;
  std::int64_t large_segment_bytes = std::int64_t{20} << 20;  // before 2.12 a constant
  double gc_threshold = 0.0;                                  // of the limit; 0: never
  // Divisions between two powers of two, for sizes of up to 2 MiB, 4 MiB, …, and beyond 32 GiB.
  std::array<std::int64_t, 16> roundup_power2_divisions = {};
};

// Reads PYTORCH_CUDA_ALLOC_CONF, "expandable_segments:True,max_split_size_mb:128". Keys that do
// not change what is allocated are taken and ignored. Error{kUsage} naming `where` for others, and
// for values that PyTorch refuses.
AllocatorSettings parse_allocator_settings(const About& where, std::string_view text);

class CachingAllocator {
 public:
  using BlockId = std::uint32_t;

  struct Statistics {
    std::int64_t requested_bytes = 0, allocated_bytes = 0, reserved_bytes = 0;
    std::int64_t most_allocated_bytes = 0, most_reserved_bytes = 0;
    std::int64_t retries = 0;  // after all that was cached went back
  };
  // Bytes that are reserved and not allocated.
  struct Unused {
    std::int64_t bytes = 0, pieces = 0, largest_bytes = 0;
  };

  // `limit_bytes`: what the driver gives at most. `has_fraction`: set_per_process_memory_fraction()
  // was called, without which nothing is collected by gc_threshold.
  CachingAllocator(const AllocatorSettings& settings, std::int64_t limit_bytes = kNoLimitBytes,
                   bool has_fraction = false);

  // A block of at least `bytes` (1 or more); nullopt: out of memory, and nothing but the cache has
  // changed.
  std::optional<BlockId> allocate(std::int64_t bytes, std::int64_t stream = 0);
  void free(BlockId id);

  const Statistics& statistics() const { return statistics_; }
  // A piece of a segment, allocated or free.
  struct Piece {
    std::int64_t segment = 0, address = 0, bytes = 0, requested_bytes = 0;
    bool is_allocated = false, is_small = false;
  };

  Unused unused() const;
  // All that is reserved, by address.
  std::vector<Piece> pieces() const;
  std::int64_t address(BlockId id) const { return blocks_[id].address; }
  std::int64_t rounded(std::int64_t bytes) const;

 private:
  static constexpr BlockId kNone = ~BlockId{0};
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, BlockId>;
  struct Pool {
    bool is_small = false;
    std::set<Key> free = {};      // by stream, bytes, address
    std::set<Key> unmapped = {};  // by stream, address
    std::int64_t searches = 0;
  };
  struct Block {
    std::int64_t stream = 0, bytes = 0, address = 0, requested = 0;
    Pool* pool = nullptr;
    BlockId before = kNone, after = kNone;  // of one segment
    std::int64_t segment = 0;               // its address
    std::int64_t born_at_search = 0;
    bool is_allocated = false, is_mapped = true, is_expandable = false;
  };

  BlockId make(Block block);
  Key free_key(BlockId id) const;
  Key unmapped_key(BlockId id) const;
  void insert(BlockId id);
  void erase(BlockId id);
  BlockId find(Pool& pool, std::int64_t stream, std::int64_t bytes);
  BlockId from_driver(Pool& pool, std::int64_t stream, std::int64_t bytes);
  BlockId expand(Pool& pool, std::int64_t stream, std::int64_t bytes);
  BlockId find_expandable(Pool& pool, std::int64_t stream, std::int64_t bytes);
  bool map(BlockId id, std::int64_t bytes);
  void unmap(BlockId id);
  void join(BlockId into, BlockId from);
  void split(BlockId id, std::int64_t bytes);
  void give_back(BlockId id);
  bool give_back_enough(Pool& pool, std::int64_t stream, std::int64_t bytes);
  void give_back_all();
  void collect();
  std::int64_t segment_bytes(std::int64_t bytes) const;
  bool is_whole(const Block& b) const { return b.before == kNone && b.after == kNone; }

  AllocatorSettings settings_;
  std::int64_t limit_bytes_;
  bool has_fraction_;
  Statistics statistics_;
  Pool small_{.is_small = true}, large_;
  std::deque<Block> blocks_;
  std::vector<BlockId> unused_ids_;
  std::int64_t last_address_ = std::int64_t{1} << 47;  // a driver gives each below the one before
};

}  // namespace tracestep

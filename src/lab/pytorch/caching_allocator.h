// Simulates PyTorch's caching allocator of CUDA memory: which blocks it would split, join, keep and
// return, so that the reserved bytes are known without a device. The rules are those of
// CUDACachingAllocator.cpp in PyTorch 2.11; what differs in other versions is a setting. A size is
// rounded up to 512 bytes. Up to 1 MiB it comes from the small pool, else from the large one. The
// smallest free block of the stream that is large enough is taken, and split if the rest is large
// enough. If there is none, a segment is requested from the driver: 2 MiB for small sizes, 20 MiB
// for sizes below 10 MiB, else the next multiple of 2 MiB. Freed blocks join their free neighbours
// in the segment. If the driver has no more memory, segments that are wholly free are returned and
// the request is repeated. An expandable segment is address space whose pages are mapped when a
// block needs them.
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
  // The size of segments for large blocks; a constant in PyTorch before 2.12.
  std::int64_t large_segment_bytes = std::int64_t{20} << 20;
  // The share of the limit above which free blocks are collected; 0: never.
  double gc_threshold = 0.0;
  // Into how many sizes the range between two powers of two is divided, for sizes of up to 2 MiB, 4
  // MiB, …, and beyond 32 GiB.
  std::array<std::int64_t, 16> roundup_power2_divisions = {};
};

// Reads PYTORCH_CUDA_ALLOC_CONF, such as "expandable_segments:True,max_split_size_mb:128". Keys
// that do not change what is allocated are ignored. Throws Error{kUsage} naming `where` for other
// keys, and for values that PyTorch refuses.
AllocatorSettings parse_allocator_settings(const About& where, std::string_view text);

class CachingAllocator {
 public:
  using BlockId = std::uint32_t;

  struct Statistics {
    std::int64_t requested_bytes = 0, allocated_bytes = 0, reserved_bytes = 0;
    std::int64_t most_allocated_bytes = 0, most_reserved_bytes = 0;
    // How often a request succeeded only after all cached segments were returned.
    std::int64_t retries = 0;
  };
  // Bytes that are reserved and not allocated.
  struct Unused {
    std::int64_t bytes = 0, pieces = 0, largest_bytes = 0;
  };

  // Starts without memory. `limit_bytes`: the most that the driver gives. `has_fraction`:
  // set_per_process_memory_fraction() was called, without which PyTorch ignores gc_threshold.
  CachingAllocator(const AllocatorSettings& settings, std::int64_t limit_bytes = kNoLimitBytes,
                   bool has_fraction = false);

  // Allocates a block of at least `bytes`, which must be positive; nullopt: out of memory. Then
  // only the cache may have changed.
  std::optional<BlockId> allocate(std::int64_t bytes, std::int64_t stream = 0);
  void free(BlockId id);

  const Statistics& statistics() const { return statistics_; }
  // A piece of a segment, allocated or free.
  struct Piece {
    std::int64_t segment = 0, address = 0, bytes = 0, requested_bytes = 0;
    bool is_allocated = false, is_small = false;
  };

  Unused unused() const;
  // All pieces of reserved memory, by address.
  std::vector<Piece> pieces() const;
  std::int64_t address(BlockId id) const { return blocks_[id].address; }
  std::int64_t rounded(std::int64_t bytes) const;

 private:
  static constexpr BlockId kNone = ~BlockId{0};
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, BlockId>;
  struct Pool {
    bool is_small = false;
    std::set<Key> free = {};      // Free blocks by stream, bytes and address.
    std::set<Key> unmapped = {};  // Unmapped pieces by stream and address.
    std::int64_t searches = 0;
  };
  struct Block {
    std::int64_t stream = 0, bytes = 0, address = 0, requested = 0;
    Pool* pool = nullptr;
    BlockId before = kNone, after = kNone;  // The neighbours in the same segment.
    std::int64_t segment = 0;               // The address of the segment.
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
  // Each new segment gets an address below the one before, as from a driver.
  std::int64_t last_address_ = std::int64_t{1} << 47;
};

}  // namespace tracestep

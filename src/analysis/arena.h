// Packs an arena: blocks with known lifetimes get offsets such that blocks that are alive at the
// same time do not overlap. Finding the smallest arena is NP-hard; for training steps a few greedy
// rounds come within a few percent of the lower bound.
#pragma once

#include <cstdint>
#include <vector>

namespace tracestep {

// Offsets in an arena are multiples of this number of bytes; no kernel needs a larger alignment.
inline constexpr std::int64_t kArenaAlignment = 256;

// The time steps during which a block is alive, both ends included.
struct Lifetime {
  std::int32_t first = 0, last = 0;

  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

struct ArenaBlock {
  std::int64_t bytes = 0;
  Lifetime life;
  std::int64_t offset = 0;
};

// Sets the offsets of the blocks and returns the bytes of the arena. Deterministic, in O(n²).
std::int64_t pack_arena(std::vector<ArenaBlock>& blocks);

// Returns a lower bound of pack_arena(): the most bytes alive at one step, each block rounded up.
std::int64_t least_arena_bytes(const std::vector<ArenaBlock>& blocks);

}  // namespace tracestep

// Packing an arena: blocks with known lifetimes get offsets such that none lies over another while
// both live. Finding the smallest arena is NP-hard; a few greedy rounds come within a percent of
// the bound for training steps.
#pragma once

#include <cstdint>
#include <vector>

namespace tracestep {

// Offsets in an arena are multiples of it: no kernel asks for more.
inline constexpr std::int64_t kArenaAlignment = 256;

// Steps of time are inclusive on both ends.
struct Lifetime {
  std::int32_t first = 0, last = 0;

  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

struct ArenaBlock {
  std::int64_t bytes = 0;
  Lifetime life;
  std::int64_t offset = 0;
};

// Sets the offsets; returns the bytes of the arena. Deterministic. O(n²).
std::int64_t pack_arena(std::vector<ArenaBlock>& blocks);

// The largest sum of blocks that live at once, each rounded up: no arena is smaller.
std::int64_t least_arena_bytes(const std::vector<ArenaBlock>& blocks);

}  // namespace tracestep

// Divides the work of an attention call among multiprocessors: the order of tiles and of blocks of
// keys, and how many thread blocks share one of them. The choices were made by timing, see
// docs/flash-attention.md and bench/results/attention-h200.md.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// Returns how many heads a section has if each has at most `most`, and all sections have nearly the
// same number.
inline int equal_sections(int heads, std::int64_t most) {
  const int fitting = static_cast<int>(std::clamp<std::int64_t>(most, 1, heads));
  const int sections = (heads + fitting - 1) / fitting;
  return (heads + sections - 1) / sections;
}

// Returns how many heads a section has (ForwardTile). The more it has, the better short tiles fill
// the end, as long as K and V of a section stay in the L2 cache until its next row of tiles reads
// them again; where rows are few, the tiles' own Q and O take much of the cache.
inline int section_heads(const AttentionShape& shape) {
  const std::int64_t most = std::int64_t{shape.keys < 1024 ? 16 : 32} << 20;
  // The bytes of K and V of one head.
  const std::int64_t key_bytes = std::int64_t{shape.keys} * shape.width * 4;
  return equal_sections(shape.batch * shape.heads, most * shape.group() / key_bytes);
}

// The order of the blocks of keys in backward; see BackwardTile and BackwardWalk.
struct BackwardOrder {
  int section_heads;
  // How many blocks walk through the queries in one direction before as many walk in the other; 0:
  // all walk in one direction.
  int round;
};

// Chooses the order. Without a mask all blocks are as long, and heads go one by one. Causal: a
// section has blocks enough for all multiprocessors to end at about the same time, and not more,
// since all blocks of a head read the same queries. Long walks alternate: in rounds of as many
// blocks as there are multiprocessors, of sections of four heads or more, which leave little room
// at their ends and where a block seldom waits for its turn at dQ; or by sections that just fill
// the multiprocessors, where there are no turns or heads are short. If neither, and the queries
// that all need at a time fit into L2, they walk one way, as short walks do (two heads to share
// keys, a window), which lose more by following each other than they gain.
inline BackwardOrder backward_order(const AttentionShape& shape, int key_blocks) {
  if (!shape.causal) return {1, 0};
  constexpr int kFewBlocks = 12, kMuchWidth = 512;
  const int heads = shape.batch * shape.heads_of_keys(), most = multiprocessor_count();
  const int fitting = equal_sections(heads, most / key_blocks), filled = fitting * key_blocks;
  const bool fills = filled <= most && filled >= most * 7 / 8 && heads % (2 * fitting) == 0;
  const bool is_long = shape.group() > 2 && shape.window == 0;
  const bool has_rounds = key_blocks >= kFewBlocks &&
                          (fills ? shape.deterministic : shape.group() * shape.width >= kMuchWidth);
  if (is_long && has_rounds)
    return {equal_sections(heads, std::max(2 * most / key_blocks, 4)), most};
  if (is_long && fills) return {fitting, filled};
  return {equal_sections(heads, 2 * most / key_blocks), 0};
}

// Returns how many blocks of a cluster divide the queries of a block of keys: as many as leave no
// multiprocessor idle, and twice as many under a causal mask, where the longest decides, if that is
// two, or if walks are long and seldom wait for their turn at dQ. A part has at least four steps,
// without which summing up costs more than it gains.
template <class Traits>
int backward_parts(const AttentionShape& shape) {
  constexpr int kMost = 4, kSteps = 4;
  const int key_blocks = (shape.keys + Traits::kN - 1) / Traits::kN;
  const int blocks = shape.batch * shape.heads_of_keys() * key_blocks;
  const int seen = shape.window > 0 ? std::min(shape.queries, shape.window) : shape.queries;
  const int steps = (seen + Traits::kM - 1) / Traits::kM * shape.group();
  int parts = 1;
  while (parts < kMost && 2 * parts * blocks <= multiprocessor_count() &&
         steps >= 2 * parts * kSteps)
    parts *= 2;
  if (!shape.causal || parts == kMost) return parts;
  const bool waits = shape.deterministic && shape.group() <= 2;
  const bool doubles = parts == 1 ? blocks <= multiprocessor_count() && steps >= 4 * kSteps
                                  : !waits && steps >= 32 * kSteps;
  return doubles ? 2 * parts : parts;
}

// Returns how many blocks of a cluster divide the keys of a tile of queries: as many as find room
// at once, which eight do less often than two, since a cluster stays within a part of the device. A
// part has at least two blocks of keys, and there are eight in all, without which merging costs
// more than it gains. The tiles of long causal heads differ so much that parts may wait for room,
// and that two pay even where each tile has a multiprocessor. Chosen by timing, see bench/results.
inline int forward_parts(const AttentionShape& shape) {
  constexpr int kRows = 128, kKeys = 128;
  const int room = multiprocessor_count();
  const int tiles = shape.batch * shape.heads * ((shape.queries + kRows - 1) / kRows);
  const int seen = shape.window > 0 ? std::min(shape.keys, shape.window + kRows) : shape.keys;
  const int steps = (seen + kKeys - 1) / kKeys;
  const bool is_uneven = shape.causal && shape.window == 0 && shape.queries >= 4096;
  if (steps < 8 || tiles > room) return 1;
  if (8 * tiles <= room / 2 && steps >= 16) return 8;
  if (4 * tiles <= (is_uneven ? room : room * 5 / 6)) return 4;
  if (2 * tiles <= room && (steps >= 16 || 4 * tiles <= room)) return 2;
  return is_uneven && steps >= 32 ? 2 : 1;
}

}  // namespace tracestep::cuda

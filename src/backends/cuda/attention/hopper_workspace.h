// How the Hopper family divides its workspace: pure functions of the shape.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/attention.h"
#include "base/integers.h"

namespace tracestep::cuda {

// The smallest kernel width that holds this one; 0: there is none. The copy engine fills the
// columns past `width` with zeros, which is possible within one panel of 64. Up to 16 the portable
// kernels are faster.
inline int hopper_width(int width) {
  if (width == 80 || width == 96 || width == 128) return width;
  return width % 8 == 0 && width > 16 && width <= 64 ? 64 : 0;
}

struct HopperBackwardWorkspace {
  std::int64_t padded_queries;                      // whole blocks of 128
  std::int64_t lse2, delta, dq_sums, turns, bytes;  // offsets, and all of it
};

inline HopperBackwardWorkspace hopper_backward_workspace(const AttentionShape& shape) {
  HopperBackwardWorkspace w{};
  w.padded_queries = round_up(shape.queries, 128);
  const std::int64_t rows = std::int64_t{shape.batch} * shape.heads * w.padded_queries;
  w.lse2 = 0;
  w.delta = round_up(w.lse2 + rows * 4, 256);
  w.dq_sums = round_up(w.delta + rows * 4, 256);
  w.turns = round_up(w.dq_sums + rows * hopper_width(shape.width) * 4, 256);
  w.bytes = w.turns + (shape.deterministic ? round_up(rows / 64 * 4, 256) : 0);
  return w;
}

// The counter of tiles handed out.
inline constexpr std::int64_t kHopperForwardWorkspace = 256;

}  // namespace tracestep::cuda

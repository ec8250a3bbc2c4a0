// How the Hopper family divides its workspace: pure functions of the shape.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

struct HopperBackwardWorkspace {
  std::int64_t padded_queries;                      // whole blocks of 128
  std::int64_t lse2, delta, dq_sums, turns, bytes;  // offsets, and all of it
};

inline HopperBackwardWorkspace hopper_backward_workspace(const AttentionShape& shape) {
  const auto up = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  HopperBackwardWorkspace w{};
  w.padded_queries = up(shape.queries, 128);
  const std::int64_t rows = std::int64_t{shape.batch} * shape.heads * w.padded_queries;
  w.lse2 = 0;
  w.delta = up(w.lse2 + rows * 4, 256);
  w.dq_sums = up(w.delta + rows * 4, 256);
  w.turns = up(w.dq_sums + rows * shape.width * 4, 256);
  w.bytes = w.turns + (shape.deterministic ? up(rows / 64 * 2 * 4, 256) : 0);
  return w;
}

// The counter of tiles handed out.
inline constexpr std::int64_t kHopperForwardWorkspace = 256;

}  // namespace tracestep::cuda

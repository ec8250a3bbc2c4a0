// The configuration of a portable backward kernel: what it makes, its tiles, its shared memory, and
// the powers of two of its operands.
#pragma once

#include "backends/cuda/attention/portable_forward.cuh"

namespace tracestep::cuda::portable {

// The results that a kernel computes. If the accumulators of dK and dV do not fit in registers
// together (wide heads), two kernels compute them, kKeys and kValues.
enum class Gradient : std::uint8_t { kKeysValues, kKeys, kValues, kQueries };

// A kernel's tiles. Operands are sums of `parts` elements E. A warp has `row_blocks` blocks of 16
// resident rows, and `passing` rows of the other side pass by at a time. kShare = 2: two warps have
// the same rows; each computes the scores of half the rows passing by and then, P and dS exchanged
// through shared memory, half the columns of the results. Only so do wide heads leave room for 32
// rows a warp; with fewer rows, shared memory would be read more often.
template <class E, int parts, int width, int row_blocks, int warps, int passing, int blocks,
          Gradient gradient, int share = 1>
struct BackwardTraits {
  using T = E;
  static constexpr int kParts = parts, kD = width, kMT = row_blocks, kN = passing, kShare = share;
  static constexpr int kWarps = warps, kThreads = 32 * warps, kBlocks = blocks;
  static constexpr Gradient kGradient = gradient;
  static constexpr bool kQueries = gradient == Gradient::kQueries;
  static constexpr bool kValues =
      gradient == Gradient::kValues || gradient == Gradient::kKeysValues;  // P' dO is wanted
  static constexpr bool kFirst = gradient != Gradient::kValues;            // dS Y is wanted
  // True if the probabilities of each query are multiplied by a factor that makes them sum to 1.
  static constexpr bool kIsCorrected = parts == 2;
  static constexpr float kShift = kProbabilityShift<E>;
  static constexpr int kGroups = warps / share;  // groups of warps, each with rows of its own
  static constexpr int kWarpRows = 16 * row_blocks, kRows = kWarpRows * kGroups;
  // The rows of a stage whose scores a warp computes.
  static constexpr int kOwn = passing / share, kNT = kOwn / 8;
  // The columns of the results that a warp computes.
  static constexpr int kColumns = width / share;
  static_assert(share == 1 || (parts == 1 && kColumns % 16 == 0 && kOwn % 16 == 0));
};

// The layout of shared memory. X are the rows that a block keeps (keys with values, or queries with
// dO: the pair), Y those that pass by, in two stages, with their pair and statistics; then
// fragments that warps exchange, and statistics of the block's own queries.
template <class Traits>
struct BackwardShared {
  static constexpr int kPitch = TileLayout<Traits::kD>::kPitch;
  static constexpr int kXPlane = Traits::kRows * kPitch, kYPlane = Traits::kN * kPitch;
  static constexpr int kX = Traits::kParts * kXPlane, kY = Traits::kParts * kYPlane;
  static constexpr int kStages = (Traits::kFirst ? 2 : 1) * kX;  // dV needs no dP, so no pair
  // Bytes of lse2, delta and the correction of the queries in a stage, if queries pass by.
  static constexpr int kStats =
      Traits::kQueries ? 0 : (Traits::kParts == 2 ? 3 : 2) * Traits::kN * 4;
  static constexpr int kStage = 2 * kY + kStats;
  // Bytes of the fragments of P of one group of warps; those of dS take as many more.
  static constexpr int kFragments = Traits::kMT * (Traits::kN / 16) * 512;
  static constexpr int kExchange = kStages + 2 * kStage;
  static constexpr int kOwnStats =
      kExchange + (Traits::kShare == 1 ? 0 : 2 * Traits::kGroups * kFragments);
  static constexpr int kOwnBytes = Traits::kParts == 2 ? 16 : 8;  // statistics of one row
  static constexpr int kBytes = kOwnStats + (Traits::kQueries ? kOwnBytes * Traits::kRows : 0);
};

// Powers of two that undo and redo the scaling of operands: dS = P (dP - delta) is computed as
// P' (grad dP' - level delta), with the exponents of all factors chosen so that no product leaves
// the range of float16.
struct BackwardScaling {
  float c = 1;                // on scores, or on tangents with a cap, to exponents of two
  float to_tangent = 0;       // on products, to arguments of the tangent; 0: there is no cap
  float grad = 1, level = 1;  // see above
  float gradient_factor = 1;  // on the sum of dS' Y
  float value_factor = 1;     // on the sum of P' dO'
  bool is_large = false;      // scores
};

__device__ __forceinline__ BackwardScaling with_cap(BackwardScaling s, float cap) {
  if (cap == 0) return s;
  s.to_tangent = s.c / (cap * kLog2E);
  s.c = cap * kLog2E;
  return s;
}

// Returns the scaling for a kernel that makes kG. `batch_head` is the head of its resident rows
// over the whole batch: of queries for kQueries, else of keys.
template <class E, Gradient kG>
__device__ __forceinline__ BackwardScaling find_scaling(const BackwardParams& p, int batch_head) {
  BackwardScaling s;
  constexpr int kShift = static_cast<int>(kProbabilityShift<E>);
  s.c = p.scale * kLog2E;
  s.grad = s.level = ldexpf(1, -kShift);
  s.gradient_factor = p.scale;
  s.value_factor = ldexpf(1, -kShift);
  if (p.ranges == nullptr) return with_cap(s, p.cap);
  const HeadRange& r = p.ranges[kG == Gradient::kQueries ? batch_head / p.group : batch_head];
  s.is_large = has_large_scores(p.scale, r);
  const int q = scale_exponent(r.magnitude[kQ]), k = scale_exponent(r.magnitude[kK]);
  const int v = scale_exponent(r.magnitude[kV]), d_o = scale_exponent(r.magnitude[kDO]);
  s.c = ldexpf(s.c, -q - k);
  s.value_factor = ldexpf(1, -kShift - d_o);
  // |dP - delta| <= 2 |dO row| |V row|; 2^15 is the largest power of two in float16.
  const int v_bound = root_exponent(r.squares[kV]) + 1;
  if constexpr (kG == Gradient::kQueries) {
    s.grad = ldexpf(1, -kShift - v_bound - d_o - v + 15);
    s.level = ldexpf(1, -kShift - v_bound + 15);
    s.gradient_factor = ldexpf(p.scale, v_bound - 15 - k);
  } else {
    const int exponent = 15 - v_bound - root_exponent(r.squares[kDO]);
    s.grad = ldexpf(1, exponent - kShift - d_o - v);
    s.level = ldexpf(1, exponent - kShift);
    s.gradient_factor = ldexpf(p.scale, -exponent - q);
  }
  return with_cap(s, p.cap);
}

}  // namespace tracestep::cuda::portable

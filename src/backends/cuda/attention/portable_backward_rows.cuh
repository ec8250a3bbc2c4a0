// Which rows a block of the portable backward kernel keeps, which pass by, and which of the two see
// each other under a causal mask.
#pragma once

#include "backends/cuda/attention/portable_backward_traits.cuh"

namespace tracestep::cuda::portable {

// Of the rows that pass by, the block walks over `steps` times kN, from `begin` on.
template <class Traits>
struct BackwardTile {
  static constexpr int kN = Traits::kN, kWarpRows = Traits::kWarpRows;
  static constexpr bool kQueries = Traits::kQueries;

  int batch_head, batch, head, first, begin, steps;

  __device__ __forceinline__ explicit BackwardTile(const BackwardParams& p) {
    constexpr int kRows = Traits::kRows;
    const int tiles = (p.x.rows + kRows - 1) / kRows;
    const int index = static_cast<int>(blockIdx.x / static_cast<unsigned>(p.batch_heads));
    batch_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.batch_heads));
    // Causal: the first keys are seen by most queries, the last queries see most keys.
    first = (kQueries && p.causal ? tiles - 1 - index : index) * kRows;
    batch = batch_head / p.heads, head = batch_head % p.heads;
    begin = !kQueries && p.causal ? ::max(first - p.offset, 0) / kN * kN : 0;
    const int end = kQueries && p.causal ? ::min(p.y.rows, first + kRows + p.offset) : p.y.rows;
    steps = end > begin ? (end - begin + kN - 1) / kN : 0;
  }

  // The first head of y that meets this one of x, and the first head of queries of the two, of all.
  __device__ __forceinline__ int first_y_head(const BackwardParams& p) const {
    return kQueries ? head / p.group : head * p.group;
  }
  __device__ __forceinline__ int first_query_head(const BackwardParams& p) const {
    return kQueries ? batch_head : batch_head * p.group;
  }

  // Whether any of a warp's rows, which begin at `own`, and of the kN from `row` on see each other.
  __device__ __forceinline__ bool sees_any(const BackwardParams& p, int own, int row) const {
    return !(p.causal &&
             (kQueries ? row > own + p.offset + kWarpRows - 1 : row + p.offset + kN - 1 < own));
  }

  // Whether hides() holds for any of these.
  __device__ __forceinline__ bool hides_any(const BackwardParams& p, int own, int row) const {
    const bool is_edge = kQueries && row + kN > p.y.rows;
    const bool is_diagonal =
        kQueries ? row + kN - 1 > own + p.offset : row + p.offset < own + kWarpRows - 1;
    return is_edge || (p.causal && is_diagonal);
  }

  // Whether the query of this pair of rows must not see the key, or the key lies behind the last.
  __device__ __forceinline__ bool hides(const BackwardParams& p, int own, int other) const {
    const bool is_masked = p.causal && (kQueries ? other > own + p.offset : own > other + p.offset);
    return is_masked || (kQueries && other >= p.y.rows);
  }
};

}  // namespace tracestep::cuda::portable

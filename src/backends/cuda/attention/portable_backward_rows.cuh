// Which rows a block of the portable backward kernel keeps, which pass by, and which of the two see
// each other under a causal mask.
#pragma once

#include "backends/cuda/attention/document_sight.cuh"
#include "backends/cuda/attention/portable_backward_traits.cuh"

namespace tracestep::cuda::portable {

// The rows of a block, from `first` on, and `steps` times kN rows of the other side, from `begin`.
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
    // The first row that the first one here sees or is seen by, and the end for the last one.
    const int see = kQueries ? begin_of(p, first) : first - p.offset;
    const int unseen = kQueries ? first + kRows + p.offset : end_of(p, first + kRows - 1);
    begin = p.causal ? ::max(see, 0) / kN * kN : 0;
    const int end = p.causal ? ::min(p.y.rows, unseen) : p.y.rows;
    steps = end > begin ? (end - begin + kN - 1) / kN : 0;
  }

  // Return the first head of Y for this head of X, and its first head of q, counted over the batch.
  __device__ __forceinline__ int first_y_head(const BackwardParams& p) const {
    return kQueries ? head / p.group : head * p.group;
  }
  __device__ __forceinline__ int first_query_head(const BackwardParams& p) const {
    return kQueries ? batch_head : batch_head * p.group;
  }

  // True if any of the warp's rows from `own` on sees, or is seen by, any of kN rows from `row` on.
  __device__ __forceinline__ bool sees_any(const BackwardParams& p, int own, int row) const {
    if (!p.causal) return true;
    if (kQueries) return are_seen(p, own, kWarpRows, row, kN);
    return are_seen(p, row, kN, own, kWarpRows);
  }

  // True if hides() holds for any of the warp's rows from `own` on and any of kN from `row` on.
  __device__ __forceinline__ bool hides_any(const BackwardParams& p, int own, int row) const {
    const bool is_edge = kQueries && row + kN > p.y.rows;
    return is_edge || (p.causal && (kQueries ? hides_some(p, own, kWarpRows, row, kN)
                                             : hides_some(p, row, kN, own, kWarpRows)));
  }

  // True if the query of this pair of rows must not see the key, or the key is after the last one.
  __device__ __forceinline__ bool hides(const BackwardParams& p, int own, int other) const {
    const int query = kQueries ? own : other, key = kQueries ? other : own;
    const bool is_masked = p.causal && (key > query + p.offset || key < begin_of(p, query));
    return is_masked || (kQueries && other >= p.y.rows);
  }

 private:
  // Return the first key that a query sees, and the first query after those that see a key.
  __device__ __forceinline__ int begin_of(const BackwardParams& p, int query) const {
    return documents(p).first_key(query, query + p.offset - p.window + 1);
  }
  __device__ __forceinline__ int end_of(const BackwardParams& p, int key) const {
    return documents(p).end_query(key, key - p.offset + p.window);
  }
  __device__ __forceinline__ DocumentSight documents(const BackwardParams& p) const {
    return {p.documents, batch, kQueries ? p.x.rows : p.y.rows};
  }

  // True if any of these queries sees any of these keys; hides_some(): if any does not see one.
  __device__ __forceinline__ bool are_seen(const BackwardParams& p, int query, int queries, int key,
                                           int keys) const {
    return key <= query + queries - 1 + p.offset && key + keys > begin_of(p, query);
  }
  __device__ __forceinline__ bool hides_some(const BackwardParams& p, int query, int queries,
                                             int key, int keys) const {
    return key + keys - 1 > query + p.offset || key < begin_of(p, query + queries - 1);
  }
};

}  // namespace tracestep::cuda::portable

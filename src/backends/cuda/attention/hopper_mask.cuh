// Scores of keys that do not exist, or that a query does not see, become -infinity, in the fragment
// layout of a warpgroup's accumulators (wgmma.cuh). Traits say whether there is a causal mask
// (kCausal: query i sees keys 0 .. i + offset) and a window (kWindowed: of these the last, and of
// rows of documents those of the query's own).
#pragma once

#include "backends/cuda/attention/document_sight.cuh"
#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// Sets to -infinity the scores of keys that their query does not see, in fragments of scores [64
// queries from first_row on][kN keys from first_key on]. `thread`: its index in the warpgroup.
template <class Traits, int kN>
__device__ __forceinline__ void mask_scores(float (&s)[kN / 2], int first_row, int first_key,
                                            int keys, int offset, int window,
                                            const DocumentSight& documents, int thread) {
  const bool is_diagonal = Traits::kCausal && first_key + kN - 1 > first_row + offset;
  // Returns the first key that a query sees.
  const auto begin_of = [&](int query) {
    return documents.first_key(query, query + 1 + offset - window);
  };
  const bool is_early = Traits::kWindowed && first_key < begin_of(first_row + 63);
  if (__builtin_expect(!is_diagonal && !is_early && first_key + kN <= keys, 1)) return;
  const int lane = thread % 32, row = first_row + thread / 32 * 16 + lane / 4;
  const int column = first_key + lane % 4 * 2;
  // The first keys that queries `row` and row + 8 do not see, counted from this thread's first key.
  const int end0 = (Traits::kCausal ? min(keys, row + 1 + offset) : keys) - column;
  const int end1 = (Traits::kCausal ? min(keys, row + 9 + offset) : keys) - column;
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e >= end0) s[4 * j + e] = -INFINITY;
      if (8 * j + e >= end1) s[4 * j + 2 + e] = -INFINITY;
    }
  }
  if constexpr (Traits::kWindowed) {
    if (!is_early) return;
    const int begin0 = begin_of(row) - column, begin1 = begin_of(row + 8) - column;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e < begin0) s[4 * j + e] = -INFINITY;
        if (8 * j + e < begin1) s[4 * j + 2 + e] = -INFINITY;
      }
    }
  }
}

// Sets to -infinity scores [64 keys][kM queries] of keys that their query does not see. `distance`:
// the first key less the last one that the first query sees; `keys_left`: keys from the first on.
template <class Traits, int kM>
__device__ __forceinline__ void mask_transposed(float (&s)[kM / 2], int distance, int keys_left,
                                                int window, int thread) {
  const bool is_diagonal = Traits::kCausal && distance + 63 > 0;
  constexpr bool kByWindow = Traits::kWindowed && !Traits::kDocuments;
  const bool is_late = kByWindow && distance + window < kM;
  if (__builtin_expect(!is_diagonal && !is_late && keys_left >= 64, 1)) return;
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  // The first of this thread's columns (queries) that sees the key `row`, or row + 8.
  const int never = 2 * kM, seen = distance + row - lane % 4 * 2;
  const int begin0 = row >= keys_left ? never : Traits::kCausal ? seen : 0;
  const int begin1 = row + 8 >= keys_left ? never : Traits::kCausal ? seen + 8 : 0;
#pragma unroll
  for (int j = 0; j < kM / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e < begin0) s[4 * j + e] = -INFINITY;
      if (8 * j + e < begin1) s[4 * j + 2 + e] = -INFINITY;
    }
  }
  if constexpr (kByWindow) {
    if (!is_late) return;
    const int end0 = seen + window;  // of the key of a row; 8 rows further: 8 later
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e >= end0) s[4 * j + e] = -INFINITY;
        if (8 * j + e >= end0 + 8) s[4 * j + 2 + e] = -INFINITY;
      }
    }
  }
}

// Sets to -infinity transposed scores of queries that come after a key's document or window. See
// mask_transposed() for `distance`; `ends`: the ends of 64 keys in shared memory, of which the
// first is the least (load_document_ends()).
template <int kM>
__device__ __forceinline__ void mask_document_ends(float (&s)[kM / 2], int distance,
                                                   std::uint32_t ends, int thread) {
  if (load_int(ends) + distance >= kM) return;
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  const int column = lane % 4 * 2 - distance;
  const int end0 = load_int(ends + 4 * row) - column, end1 = load_int(ends + 4 * row + 32) - column;
#pragma unroll
  for (int j = 0; j < kM / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e >= end0) s[4 * j + e] = -INFINITY;
      if (8 * j + e >= end1) s[4 * j + 2 + e] = -INFINITY;
    }
  }
}

}  // namespace tracestep::cuda

// The bounds of documents as kernels ask for them: which keys a query sees, and which queries a
// key.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// The documents of one entry of the batch. Bounds never decrease along its `places` positions, so a
// tile's first query has the first key that the tile sees, and its last key the last query.
struct DocumentSight {
  const std::int64_t *starts, *ends;  // or null: there are none
  int places;

  __device__ __forceinline__ DocumentSight(const DocumentBounds& all, int batch, int count)
      : starts(all.starts), ends(all.ends), places(count) {
    const std::int64_t before = std::int64_t{batch} * count;
    if (starts != nullptr) {
      starts += before;
      ends += before;
    }
  }

  // Returns the first key that `query` sees: the first of its document, but at least `by_window`.
  // Queries after the last row count as belonging to that row's document.
  __device__ __forceinline__ int first_key(int query, int by_window) const {
    if (starts == nullptr) return by_window;
    return ::max(by_window, static_cast<int>(starts[::min(query, places - 1)]));
  }
  // Returns the first query after those that see `key`, at most `by_window`.
  __device__ __forceinline__ int end_query(int key, int by_window) const {
    if (starts == nullptr) return by_window;
    return ::min(by_window, static_cast<int>(ends[::min(key, places - 1)]));
  }
};

// True for the Hopper kernels that read the bounds of documents here: those that walk along keys
// and do not cap scores. Kernels that walk along queries have no registers left for that, so their
// variants for documents read bounds from shared memory (Documented, hopper_backward_feed.cuh).
template <class Traits>
inline constexpr bool kKnowsDocuments = Traits::kWindowed && !Traits::kCapped;

template <class Traits>
__device__ __forceinline__ DocumentSight document_sight(const DocumentBounds& all, int batch,
                                                        int count) {
  if constexpr (kKnowsDocuments<Traits>)
    return {all, batch, count};
  else
    return {DocumentBounds(), batch, count};
}

}  // namespace tracestep::cuda

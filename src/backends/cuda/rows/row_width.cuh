// Flat indices into dense rows: which row the i-th element, or pack of elements, lies in.
#pragma once

#include <cstdint>

#include "backends/cuda/maps/strided.cuh"

namespace tracestep::cuda {

// True if indices below `count` fit in uint32_t with room for steps; else kernels take uint64_t.
inline bool fits_32_bits(std::int64_t count) {
  return count < (std::int64_t{1} << 31);
}

struct RowWidth {
  std::int64_t value;  // at least 1
  Divisor divisor;     // of widths below 2^31

  explicit RowWidth(std::int64_t width) : value(width) {
    if (fits_32_bits(width)) divisor = Divisor(static_cast<std::uint32_t>(width));
  }

  template <class Index>
  __device__ Index row_of(Index i) const {
    if constexpr (sizeof(Index) == 4) {
      return divisor.divide(i);
    } else {
      return i / static_cast<Index>(value);
    }
  }
};

// Calls f(Index{}) with the index type for `count` items.
template <class F>
void with_index(std::int64_t count, F&& f) {
  if (fits_32_bits(count)) {
    f(std::uint32_t{});
  } else {
    f(std::uint64_t{});
  }
}

}  // namespace tracestep::cuda

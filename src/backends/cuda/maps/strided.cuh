// Strided operands in device code: several operands of one shape, walked together in the row-major
// order of that shape. Adjacent dimensions that are contiguous in all of them are merged.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "backends/cuda/launch.cuh"
#include "runtime/tensor_ref.h"

namespace tracestep::cuda {

// Computes n / value for 0 <= n < 2^31 by a multiplication (Granlund and Montgomery 1994).
struct Divisor {
  std::uint32_t value = 1, multiplier = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) : value(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ std::uint32_t divide(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

// Finds where element i of the operands' shape lies in each of `kOperands` operands.
template <int kOperands>
struct Walk {
  int rank = 0;  // merged; 0: one element
  std::int64_t count = 1;
  std::int64_t sizes[kMaxRank] = {};  // [0] is the innermost dimension
  Divisor divisors[kMaxRank];
  std::int64_t strides[kMaxRank][kOperands] = {};  // elements

  // True if all operands are dense in this order, that is, element i lies at offset i.
  bool is_dense() const {
    if (rank == 0) return true;
    if (rank > 1) return false;
    for (int k = 0; k < kOperands; ++k) {
      if (strides[0][k] != 1) return false;
    }
    return true;
  }
  bool fits_32_bits() const { return count < (std::int64_t{1} << 31); }

  void set_divisors() {
    for (int d = 0; d < rank; ++d) divisors[d] = Divisor(static_cast<std::uint32_t>(sizes[d]));
  }

  // Finds each operand's offset of element i. Index is uint32_t if fits_32_bits(), else uint64_t.
  template <class Index>
  __device__ void offsets(Index i, std::int64_t (&out)[kOperands]) const {
#pragma unroll
    for (int k = 0; k < kOperands; ++k) out[k] = 0;
#pragma unroll
    for (int d = 0; d < kMaxRank; ++d) {
      if (d >= rank) break;
      Index quotient, rest;
      if (d + 1 == rank) {
        quotient = 0;
        rest = i;
      } else {
        if constexpr (sizeof(Index) == 4) {
          quotient = divisors[d].divide(i);
        } else {
          quotient = i / static_cast<Index>(sizes[d]);
        }
        rest = i - quotient * static_cast<Index>(sizes[d]);
      }
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        out[k] += static_cast<std::int64_t>(rest) * strides[d][k];
      }
      i = quotient;
    }
  }
};

// Makes a walk over `shape` and merges dimensions where that is possible; operand k has strides[k].
template <int kOperands>
Walk<kOperands> make_walk(const Shape& shape, const std::array<Strides, kOperands>& strides) {
  Walk<kOperands> out;
  out.count = shape.product();
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    bool merges = out.rank > 0;
    for (int k = 0; k < kOperands && merges; ++k) {
      const std::int64_t* last = out.strides[out.rank - 1];
      merges = strides[static_cast<std::size_t>(k)][i] == last[k] * out.sizes[out.rank - 1];
    }
    if (merges) {
      out.sizes[out.rank - 1] *= shape[i];
      continue;
    }
    out.sizes[out.rank] = shape[i];
    for (int k = 0; k < kOperands; ++k) {
      out.strides[out.rank][k] = strides[static_cast<std::size_t>(k)][i];
    }
    ++out.rank;
  }
  if (out.fits_32_bits()) out.set_divisors();
  return out;
}

// Calls f(part, first, offsets) for parts of the walk that fit 32 bits, in order: `first` is the
// number of elements before the part, `offsets` where its operands begin.
template <int kOperands, class F>
void for_parts(const Walk<kOperands>& walk, const F& f, std::int64_t first = 0,
               const std::type_identity_t<std::array<std::int64_t, kOperands>>& offsets = {}) {
  if (walk.fits_32_bits()) return f(walk, first, offsets);
  const int outer = walk.rank - 1;
  const std::int64_t slice = walk.count / walk.sizes[outer];
  const std::int64_t slices = std::max<std::int64_t>(1, ((std::int64_t{1} << 31) - 1) / slice);
  for (std::int64_t begin = 0; begin < walk.sizes[outer]; begin += slices) {
    Walk<kOperands> part = walk;
    part.sizes[outer] = std::min(slices, walk.sizes[outer] - begin);
    part.count = slice * part.sizes[outer];
    if (part.sizes[outer] == 1) --part.rank;
    if (part.fits_32_bits()) part.set_divisors();
    std::array<std::int64_t, kOperands> part_offsets = offsets;
    for (int k = 0; k < kOperands; ++k) {
      part_offsets[static_cast<std::size_t>(k)] += begin * walk.strides[outer][k];
    }
    for_parts(part, f, first + begin * slice, part_offsets);
  }
}

}  // namespace tracestep::cuda

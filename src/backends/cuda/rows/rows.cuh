// Dense rows in device code: how rows are dealt out to threads, and how threads read and write
// their part of a row in packs of 16 bytes.
//
// A row is cut into packs that are aligned in memory, so its first and its last pack may hang over
// its ends. Pack p belongs to lane p mod lanes; what a thread reads, it alone writes, so results
// may lie in the storage of the operand.
#pragma once

#include <bit>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/rows/reduce.cuh"

namespace tracestep::cuda {

inline constexpr unsigned kMostThreads = 1024;

// How rows are dealt out: `lanes` threads share one, a power of two up to a warp, then whole warps.
struct RowPlan {
  int lanes = 1;
  int rows_per_block = 1;
  // Where a block has several rows, lanes == 1 << shift, so that no thread has to divide.
  int shift = 31;

  unsigned threads() const { return static_cast<unsigned>(lanes * rows_per_block); }
  unsigned blocks(std::int64_t rows) const {
    return static_cast<unsigned>(ceil_div(rows, rows_per_block));
  }

  // Return the row of this thread, and its lane among the threads of that row.
  __device__ std::int64_t row() const {
    return std::int64_t{blockIdx.x} * rows_per_block + (threadIdx.x >> shift);
  }
  __device__ int lane() const { return static_cast<int>(threadIdx.x & ((1u << shift) - 1)); }
};

// Plans lanes for rows of `packs` packs, of which a thread takes up to `packs_per_thread` at a
// time. Rows that need at most a warp share a block of `threads`; kernels walk rows that would need
// more than `most_lanes` in a loop.
inline RowPlan plan_rows(std::int64_t packs, int packs_per_thread, unsigned most_lanes,
                         unsigned threads = 128) {
  const auto wanted = static_cast<unsigned>(
      std::clamp<std::int64_t>(ceil_div(packs, packs_per_thread), 1, std::int64_t{most_lanes}));
  if (wanted > kWarp) return {static_cast<int>((wanted + kWarp - 1) / kWarp * kWarp), 1};
  const unsigned lanes = std::bit_ceil(wanted);
  return {static_cast<int>(lanes), static_cast<int>(threads / lanes),
          static_cast<int>(std::bit_width(lanes)) - 1};
}

// Returns how many packs cover a row of `width` elements at `data`, or any of the rows after it.
template <class T>
std::int64_t packs_of_rows(const void* data, std::int64_t width) {
  const bool aligned = is_aligned(data, 16) && width % kPack<T> == 0;
  return ceil_div(width + (aligned ? 0 : kPack<T> - 1), kPack<T>);
}

// Returns how many elements of the row's first pack lie before the row.
template <class T, int kSize = kPack<T>>
__device__ inline int pack_shift(const T* row) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / sizeof(T) % kSize);
}

// Where a thread's packs of a row begin: first, first + step, ... Index is int or std::int64_t.
template <class Index>
struct Packs {
  Index first, step;
};

// Loads kCount packs. Elements outside [0, visible) become `outside`; nothing outside [0, width) is
// read. `aligned`: the packs are aligned in this row (shifts of operands may differ).
template <int kCount, class T, int kSize, class Index>
__device__ inline void load_row(const T* row, const Packs<Index>& packs, Index visible, Index width,
                                bool aligned, T outside, Pack<T, kSize> (&out)[kCount]) {
  const Index last = packs.first + (kCount - 1) * packs.step;
  if (aligned && packs.first >= 0 && last + kSize <= visible) {  // nothing to leave out
#pragma unroll
    for (int k = 0; k < kCount; ++k) out[k] = load_pack<kSize>(row + packs.first + k * packs.step);
    return;
  }
  bool whole = aligned;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Index begin = packs.first + k * packs.step;
    whole = whole && (begin >= visible || (begin >= 0 && begin + kSize <= width));
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[k].at[i] = outside;
  }
  if (whole) {  // all loads are in flight before the first is used
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index begin = packs.first + k * packs.step;
      if (begin < visible) out[k] = load_pack<kSize>(row + begin);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index begin = packs.first + k * packs.step;
      if (begin >= visible || begin + kSize <= visible) continue;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        if (begin + i >= visible) out[k].at[i] = outside;
      }
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const Index at = packs.first + k * packs.step + i;
      if (at >= 0 && at < visible) out[k].at[i] = row[at];
    }
  }
}

template <class T, class Index>
__device__ inline void store_row_pack(T* row, Index begin, Index width, bool aligned,
                                      const Pack<T, kPack<T>>& pack) {
  constexpr int kSize = kPack<T>;
  if (aligned && begin >= 0 && begin + kSize <= width) {
    store_pack(row + begin, pack);
    return;
  }
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    if (begin + i >= 0 && begin + i < width) row[begin + i] = pack.at[i];
  }
}

// Combines the values of a row's lanes, in an order that depends only on `lanes`; all lanes get the
// result. Lanes beyond a warp must be the whole block: one barrier, and `scratch` (one float per
// warp) may be reused only after the next barrier.
template <class F>
__device__ inline float lanes_reduce(float x, int lanes, float* scratch) {
  if (lanes < kWarp) {
    for (int step = lanes / 2; step > 0; step /= 2) {
      x = F()(x, __shfl_xor_sync(0xffffffffu, x, step));
    }
    return x;
  }
  x = warp_reduce<F>(x);
  if (lanes == kWarp) return x;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = lanes / kWarp;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < warps ? scratch[lane] : F::kNeutral;
  return warp_reduce<F>(x);
}

// Combines the kCount elements of an array in registers, by halves.
template <class F, int kCount>
__device__ inline float fold_in_pairs(const float* x) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    return F()(fold_in_pairs<F, kCount / 2>(x), fold_in_pairs<F, kCount / 2>(x + kCount / 2));
  }
}
template <int kCount>
__device__ inline float sum_in_pairs(const float* x) {
  return fold_in_pairs<Plus, kCount>(x);
}

// Returns 2^x to two units in the last place; results below the normal numbers become 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

}  // namespace tracestep::cuda

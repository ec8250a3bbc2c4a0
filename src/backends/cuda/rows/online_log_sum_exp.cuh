// log Σ exp(x) in one pass over a row: the largest element so far and the sum shifted by it
// (Milakov and Gimelshein 2018). Shared by softmax of long rows, log-sum-exp and cross-entropy.
#pragma once

#include "backends/cuda/rows/row_packs.cuh"

namespace tracestep::cuda {

// The packs that a thread has in flight: of 16-bit elements twice as many, as a pack of them takes
// twice as long to add, and meanwhile the loads of other threads must keep the memory busy.
template <class T, bool kWhole>
inline constexpr int kOnlinePacks = kWhole && sizeof(T) == 2 ? 8 : 4;
// The most threads that share a row.
inline constexpr unsigned kOnlineThreads = 512;

// Plans the threads of each row: many rows are fastest in small blocks, few rows need as many
// threads as they can use. Threads that take several turns at a row take equal shares.
template <class T>
RowPlan plan_online_rows(const void* data, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kManyRows = 1024;
  const bool whole = are_whole<T>(width, data);
  const int held = whole ? kOnlinePacks<T, true> : kOnlinePacks<T, false>;
  const auto most = rows < kManyRows ? kOnlineThreads : static_cast<unsigned>(kWarp * held);
  const std::int64_t packs = packs_of_rows<T>(data, width);
  const std::int64_t turns = std::max<std::int64_t>(1, ceil_div(packs, std::int64_t{held} * most));
  return plan_rows(ceil_div(packs, turns), held, most);
}

// The running sum Σ 2^(c·x - c·top), c > 0, over the elements seen, of which `top` is the largest.
struct OnlineSum {
  float top = Largest::kNeutral, total = 0.0f;

  // Adds the elements of packs. -inf adds nothing, even if all elements so far are -inf.
  template <class T, int kCount>
  __device__ void add(const RowPack<T> (&packs)[kCount], float c) {
    constexpr int kSize = kPack<T>;
    const float shift = raise(largest_of(packs), c);
    float sums[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      float e[kSize];
      packs[k].floats(e);
#pragma unroll
      for (int i = 0; i < kSize; ++i) e[i] = fast_exp2(fmaf(e[i], c, -shift));
      sums[k] = sum_in_pairs<kSize>(e);
    }
    total += sum_in_pairs<kCount>(sums);
  }

  // Adds up the sums of a row's lanes; all of them get the result. If they are more than a warp,
  // they must be the whole block: one barrier. `scratch`: 2 * kWarp floats.
  __device__ void combine(float c, int lanes, float* scratch) {
    const int in_warp = ::min(lanes, kWarp);
    raise(lanes_reduce<Largest>(top, in_warp, nullptr), c);
    total = lanes_reduce<Plus>(total, in_warp, nullptr);
    if (lanes <= kWarp) return;
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = lanes / kWarp;
    if (lane == 0) {
      scratch[warp] = top;
      scratch[kWarp + warp] = total;
    }
    __syncthreads();
    top = lane < warps ? scratch[lane] : Largest::kNeutral;
    total = lane < warps ? scratch[kWarp + lane] : 0.0f;
    raise(warp_reduce<Largest>(top), c);
    total = warp_reduce<Plus>(total);
  }

 private:
  // Shifts the sum to a `top` of at least `x`; returns c·top, or 0 where top is -inf.
  __device__ float raise(float x, float c) {
    const float raised = maximum(top, x);
    const float shift = raised == Largest::kNeutral ? 0.0f : raised * c;
    total *= fast_exp2(fmaf(top, c, -shift));
    top = raised;
    return shift;
  }
};

// Returns a lane's part of the sum over elements [0, visible) of a row, times `sign` (1 or -1).
template <bool kWhole, class T>
__device__ inline OnlineSum online_sum(const T* row, std::int64_t visible, std::int64_t width,
                                       float sign, float c, int lane, int lanes) {
  constexpr int kSize = kPack<T>, kCount = kOnlinePacks<T, kWhole>;
  const int shift = row_shift<kWhole>(row), step = lanes * kSize;
  OnlineSum sum;
  for (std::int64_t begin = 0; begin < visible + shift; begin += kCount * step) {
    RowPack<T> packs[kCount];
    const RowRange<kWhole> range(shift, begin, visible, width);
    load_row(row - shift + begin, lane * kSize, step, range,
             from_float<T>(sign * Largest::kNeutral), packs);
    if (sign < 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) packs[k].negate();
    }
    sum.add(packs, c);
  }
  return sum;
}

// Returns log Σ exp(x) of a sum made with c = log2(e), and corrects it for the rounding of c·top,
// which is common to all exponents. A row of -inf gives NaN, as inf - inf in the formula.
__device__ inline float log_of(const OnlineSum& sum) {
  if (sum.top == Largest::kNeutral) return __int_as_float(0x7fffffff);
  const float shift = sum.top * kLog2e;
  return sum.top + (logf(sum.total) - fmaf(sum.top, kLog2e, -shift) * kLn2);
}

}  // namespace tracestep::cuda

// log Σ exp(x) in one pass over a row: the largest element so far and the sum shifted by it
// (Milakov and Gimelshein 2018). Shared by softmax of long rows, log-sum-exp and cross-entropy.
#pragma once

#include "backends/cuda/rows.cuh"

namespace tracestep::cuda {

// Packs that a thread has in flight, and most threads of a row.
inline constexpr int kOnlinePacks = 4;
inline constexpr unsigned kOnlineThreads = 512;

// Many rows keep the device busy best in small blocks, a few need all the threads they can use.
template <class T>
RowPlan plan_online_rows(const void* data, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kManyRows = 1024;
  return plan_rows(packs_of_rows<T>(data, width), kOnlinePacks,
                   rows < kManyRows ? kOnlineThreads : kOnlineThreads / 4);
}

// Σ e^(c·x - c·top) over what was seen, c > 0. Exponents are multiply-adds of base 2.
struct OnlineSum {
  float top = Largest::kNeutral, total = 0.0f;

  // -inf adds nothing, also while there is nothing else.
  template <int kCount>
  __device__ void add(const float (&x)[kCount], float c) {
    float largest = x[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) largest = maximum(largest, x[i]);
    const float shift = raise(largest, c);
    float e[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) e[i] = fast_exp2(fmaf(x[i], c, -shift));
    total += sum_in_pairs<kCount>(e);
  }

  // All lanes of a row get the sum over the row. `scratch`: 2 * kWarp floats.
  __device__ void combine(float c, int lanes, float* scratch) {
    raise(lanes_reduce<Largest>(top, lanes, scratch), c);
    total = lanes_reduce<Plus>(total, lanes, scratch + kWarp);
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

// The online sum over [0, visible) of a row, by all its lanes; elements times `sign` (1 or -1).
template <class T>
__device__ inline OnlineSum online_sum(const T* row, std::int64_t visible, std::int64_t width,
                                       float sign, float c, int lane, int lanes, float* scratch) {
  constexpr int kSize = kPack<T>;
  const std::int64_t step = std::int64_t{lanes} * kSize;
  OnlineSum sum;
  for (std::int64_t begin = std::int64_t{lane} * kSize - pack_shift(row); begin < visible;
       begin += kOnlinePacks * step) {
    Pack<T, kSize> packs[kOnlinePacks];
    load_row(row, Packs<std::int64_t>{begin, step}, visible, width, true,
             from_float<T>(sign * Largest::kNeutral), packs);
    float x[kOnlinePacks * kSize];
#pragma unroll
    for (int i = 0; i < kOnlinePacks * kSize; ++i) {
      x[i] = sign * to_float(packs[i / kSize].at[i % kSize]);
    }
    sum.add(x, c);
  }
  sum.combine(c, lanes, scratch);
  return sum;
}

// log Σ exp(x) of a sum with c = log2(e). What rounding c·top took from all exponents alike is put
// back. A row of -inf has no sum: NaN, as inf - inf in the formula.
__device__ inline float log_of(const OnlineSum& sum) {
  if (sum.top == Largest::kNeutral) return __int_as_float(0x7fffffff);
  const float shift = sum.top * kLog2e;
  return sum.top + (logf(sum.total) - fmaf(sum.top, kLog2e, -shift) * kLn2);
}

}  // namespace tracestep::cuda

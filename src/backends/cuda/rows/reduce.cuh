// Sums and maxima over a warp or a block, in an order that only depends on the number of threads:
// the same inputs give the same bits.
#pragma once

#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda {

inline constexpr int kWarp = 32;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
  static constexpr float kNeutral = 0.0f;
};
struct Largest {
  __device__ float operator()(float a, float b) const { return maximum(a, b); }
  static constexpr float kNeutral = -__builtin_huge_valf();
};

// Reduces x over kLanes neighbouring lanes of a warp; each of them gets the result.
template <class F, int kLanes = kWarp>
__device__ inline float warp_reduce(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    x = F()(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

// Reduces x over the block; every thread gets the result. `scratch`: shared memory, one float per
// warp, not used otherwise; the block must be whole warps. Two barriers.
template <class F>
__device__ inline float block_reduce(float x, float* scratch) {
  x = warp_reduce<F>(x);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < warps ? scratch[lane] : F::kNeutral;
  x = warp_reduce<F>(x);
  __syncthreads();
  return x;
}

}  // namespace tracestep::cuda

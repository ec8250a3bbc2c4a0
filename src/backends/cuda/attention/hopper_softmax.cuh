// The running softmax of two rows per thread over blocks of scores, in the fragment layout of a
// warpgroup's accumulators (wgmma.cuh): four neighbouring lanes share a row.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// Multiplies each of the two rows of a thread's accumulators by its factor.
template <int K>
__device__ __forceinline__ void scale_rows(float (&d)[K], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < K; ++i) d[i] *= factor[i / 2 % 2];
}

class RowSoftmax {
 public:
  // Starts a thread's rows with their first block of scores: s becomes exp(scale s - scale max s).
  template <int K>
  __device__ __forceinline__ void begin(float (&s)[K], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum_[r] = row_maximum(s, r);
    exponentiate(s, scale_log2);
    row_sums(s, sum_[0], sum_[1]);
  }

  // Starts a thread's rows where they see no block at all.
  __device__ __forceinline__ void begin_empty() {
    maximum_[0] = maximum_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
  }

  // Adds a block. The reference maximum stays until a row of the warp grows by more than
  // `threshold` in log2; then this returns true, and the caller must multiply its earlier sums by
  // `factor`. The result is exact either way: numerator and denominator share the reference.
  template <int K>
  __device__ __forceinline__ bool advance(float (&s)[K], float scale_log2, float threshold,
                                          float (&factor)[2]) {
    float largest[2];
    bool outgrown = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(maximum_[r], row_maximum(s, r));
      outgrown = outgrown || (largest[r] - maximum_[r]) * scale_log2 > threshold;
    }
    const bool grows = __any_sync(0xffffffffU, outgrown);
    if (grows) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor[r] = largest[r] == -INFINITY ? 1.0F  // nothing seen yet
                                            : exp2_fast((maximum_[r] - largest[r]) * scale_log2);
        maximum_[r] = largest[r];
        sum_[r] *= factor[r];
      }
    } else {
      factor[0] = factor[1] = 1.0F;
    }
    exponentiate(s, scale_log2);
    float sums[2];
    row_sums(s, sums[0], sums[1]);
    sum_[0] += sums[0];
    sum_[1] += sums[1];
    return grows;
  }

  // Sets the factors that make o of the rows' sums of P V, and the rows' natural log-sum-exp.
  __device__ __forceinline__ void end(float (&factor)[2], float (&lse)[2], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = row_sum(r);
      factor[r] = sum == 0 ? 0.0F : 1.0F / sum;  // no key is seen: o = 0, LSE = -infinity
      lse[r] = (maximum_[r] * scale_log2 + log2f(sum)) * 0.693147181F;
    }
  }

  // Returns what parts of a row exchange to merge: the maxima of this thread's two rows, then sums.
  __device__ __forceinline__ float4 state() const {
    return make_float4(maximum_[0], maximum_[1], row_sum(0), row_sum(1));
  }

 private:
  __device__ __forceinline__ float row_sum(int r) const {
    float sum = sum_[r];
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    sum += __shfl_xor_sync(0xffffffffU, sum, 2);
    return sum;
  }

  template <int K>
  static __device__ __forceinline__ float row_maximum(const float (&s)[K], int r) {
    float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[2 * r + 4], s[2 * r + 5]);
#pragma unroll
    for (int j = 2; j < K / 4; j += 2) {
      a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
      b = fmaxf(b, fmaxf(s[4 * j + 4 + 2 * r], s[4 * j + 4 + 2 * r + 1]));
    }
    a = fmaxf(a, b);
    a = fmaxf(a, __shfl_xor_sync(0xffffffffU, a, 1));
    return fmaxf(a, __shfl_xor_sync(0xffffffffU, a, 2));
  }

  template <int K>
  __device__ __forceinline__ void exponentiate(float (&s)[K], float scale_log2) const {
    float offset[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      offset[r] = maximum_[r] == -INFINITY ? 0.0F : maximum_[r] * scale_log2;
#pragma unroll
    for (int i = 0; i < K; ++i) s[i] = exp2_fast(fmaf(s[i], scale_log2, -offset[i / 2 % 2]));
  }

  template <int K>
  static __device__ __forceinline__ void row_sums(const float (&s)[K], float& sum0, float& sum1) {
    float a[4] = {s[0], s[2], s[1], s[3]};
#pragma unroll
    for (int j = 1; j < K / 4; ++j) {
      a[0] += s[4 * j];
      a[1] += s[4 * j + 2];
      a[2] += s[4 * j + 1];
      a[3] += s[4 * j + 3];
    }
    sum0 = a[0] + a[2];
    sum1 = a[1] + a[3];
  }

  float maximum_[2], sum_[2];
};

}  // namespace tracestep::cuda

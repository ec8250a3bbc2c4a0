// Capped scores (Gemma 2): a scaled score s becomes cap tanh(s / cap). Kernels of their own keep
// its tangent t = tanh(s / cap) and take cap log2 e for what makes exponents of two of it; the
// slope that a cap leaves is 1 - t^2. (A branch in the other kernels cost these 2 to 7 %.)
#pragma once

#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// Adds capped scores to the traits `Traits` of a kernel.
template <class Traits>
struct Capped : Traits {
  static constexpr bool kCapped = true;
};

// The largest |x| for which tanh(x) is computed by an odd polynomial on the multiply-add units, off
// by 5e-8 of the result; most arguments are smaller. If a warp has a larger one, it takes all its
// tangents by an exponential (2e-7). tanh.approx.f32 is one instruction, but off by up to 2^-11 of
// its result: 0.02 in a score near 50.
constexpr float kShortTangent = 0.5F;
__device__ __forceinline__ float tanh_near_zero(float x) {
  const float z = x * x;
  float p = fmaf(0.017241491F, z, -0.0530454926F);
  p = fmaf(p, z, 0.13325879F);
  p = fmaf(p, z, -0.333331436F);
  return fmaf(x * z, p, x);
}
__device__ __forceinline__ float tanh_by_exp2(float x) {
  return fmaf(-2.0F, reciprocal_fast(1.0F + exp2_fast(x * 2.88539008F)), 1.0F);
}

// Replaces each product q k by tanh(q k to_tangent), where `to_tangent` is scale / cap.
template <int K>
__device__ __forceinline__ void take_tangents(float (&s)[K], float to_tangent) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < K; ++i) largest = fmaxf(largest, fabsf(s[i]));
  if (__any_sync(0xffffffffU, !(largest * to_tangent <= kShortTangent))) {
#pragma unroll
    for (int i = 0; i < K; ++i) s[i] = tanh_by_exp2(s[i] * to_tangent);
  } else {
#pragma unroll
    for (int i = 0; i < K; ++i) s[i] = tanh_near_zero(s[i] * to_tangent);
  }
}

// Returns 1 - t^2, the slope of the cap; 0 for a masked score, whose tangent is -infinity.
__device__ __forceinline__ float slope_of_cap(float tangent) {
  return fmaxf(fmaf(-tangent, tangent, 1.0F), 0.0F);
}

}  // namespace tracestep::cuda

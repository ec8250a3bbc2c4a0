// Operands of products by parts: two float16 parts of every element, and the scales of every 64
// elements of K.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <span>

#include "backends/cuda/predecessors.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {

// Says where the parts of an operand [batch, rows, K] lie in a workspace, by its plan.
struct SplitParts {
  __half* parts = nullptr;  // [batch][2][rows][padded_k]: x · 2^-e, high and low; null: not wanted
  float* scales = nullptr;  // [batch][padded_k / 64][scale_rows]: 2^e
  std::int64_t rows = 0, padded_k = 0, scale_rows = 0;

  SplitParts() = default;
  SplitParts(const SplitPartsPlan& plan, void* workspace)
      : parts(reinterpret_cast<__half*>(static_cast<std::byte*>(workspace) + plan.parts)),
        scales(reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + plan.scales)),
        rows(plan.rows),
        padded_k(plan.padded_k),
        scale_rows(plan.scale_rows) {}
};

// Stored matrices [batch, rows, columns], and where their parts go: `along` with K along the stored
// rows, `down` with K down them; either may be unwanted.
struct SplitSource {
  const float* data = nullptr;
  std::int64_t leading = 0, batch_stride = 0;  // elements
  std::int64_t rows = 0, columns = 0, batch = 1;
  SplitParts along = {}, down = {};
  bool has_vectors = false;  // can be read in steps of 16 bytes (split_sources() finds out)
  unsigned first_block = 0;  // the first of its blocks in the kernel's grid (likewise)
};

// Makes the parts of all sources in one launch (parts.cu). At most three sources.
cudaError_t split_sources(std::span<const SplitSource> sources, const LaunchStream& stream);

// Returns the bits of the magnitude; they are ordered as magnitudes are, infinity and NaN last.
__device__ __forceinline__ std::uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffU;
}

__device__ __forceinline__ float power_of_two(int exponent) {  // -149 to 127
  return __uint_as_float(exponent >= -126 ? static_cast<std::uint32_t>(exponent + 127) << 23
                                          : 1U << (exponent + 149));
}

// Multiplies x by 2^-e, where e brings the largest magnitude to [2^14, 2^15). This is exact if the
// result is in float32's range, and takes two steps because 2^-e may be out of that range.
struct Scaling {
  int exponent;
  float first, second;
  bool is_finite;
  __device__ __forceinline__ explicit Scaling(std::uint32_t largest)
      : exponent(max(static_cast<int>(largest >> 23), 1) - 127 - 14),
        first(power_of_two(-exponent / 2)),
        second(power_of_two(-exponent + exponent / 2)),
        is_finite(largest < 0x7f800000U) {}
  __device__ __forceinline__ float operator()(float x) const { return x * first * second; }
  // Returns the scale 2^e; NaN for a row with an infinity or a NaN, so that its sums become NaN.
  __device__ __forceinline__ float scale() const {
    return is_finite ? power_of_two(exponent) : __uint_as_float(0x7fffffffU);
  }
};

}  // namespace tracestep::cuda

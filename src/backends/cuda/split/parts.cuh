// An operand of a product by parts: the largest magnitude of each row along K, and the two parts of
// every element.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backends/cuda/predecessors.cuh"
#include "backends/cuda/split/product.h"

namespace tracestep::cuda {

// What the kernels need of an operand. A row of the operand is what lies along K.
struct SplitSource {
  SplitOperand from;
  std::int64_t rows = 0, k = 0, padded_k = 0;
  int batch = 1;
  int warps = 1;                    // that share a row, where K runs along
  bool has_vectors = false;         // `from` can be read in steps of 16 bytes
  __half* parts = nullptr;          // [batch][2][rows][padded_k]
  std::uint32_t* scales = nullptr;  // [batch][rows]: bits of the largest magnitude
  std::uint32_t* maxima = nullptr;  // [batch][chunks][rows], where K runs down
  int chunks = 0;
  unsigned first_block = 0;  // of the kernel's grid
};

// Bits of the magnitude; they are ordered as magnitudes are, with infinity and NaN last.
__device__ __forceinline__ std::uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffU;
}
constexpr std::uint32_t kInfinityBits = 0x7f800000U;

// Parts are scaled so that the largest of a row is in [2^14, 2^15).
__device__ __forceinline__ int scale_exponent(std::uint32_t largest) {
  return max(static_cast<int>(largest >> 23), 1) - 127 - 14;
}
__device__ __forceinline__ float power_of_two(int exponent) {  // -126 to 127
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// x · 2^-e, exactly where that is in the range of float32; in two steps, since 2^-e may not be.
struct Scaling {
  float first, second;
  __device__ __forceinline__ explicit Scaling(std::uint32_t largest) {
    const int e = -scale_exponent(largest);
    first = power_of_two(e / 2);
    second = power_of_two(e - e / 2);
  }
  __device__ __forceinline__ float operator()(float x) const { return x * first * second; }
};

struct Parts {
  __half high, low;
};
__device__ __forceinline__ Parts parts_of(float scaled) {
  const __half high = __float2half_rn(scaled);
  return {high, __float2half_rn(scaled - __half2float(high))};
}

// Fills the parts and scales of both operands (parts.cu).
cudaError_t split_operands(const SplitSource& a, const SplitSource& b, const LaunchStream& stream);

}  // namespace tracestep::cuda

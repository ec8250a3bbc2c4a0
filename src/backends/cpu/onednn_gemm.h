// One block of a float32 product by oneDNN, for machines where it beats the packed product of
// gemm-inl.h: with AVX-512 it reached 92 % of the multiply-add peak against 85 % (one step of k a
// turn; not measured again); with AVX2 both reach 88 % and the packed product is taken.
#pragma once

#include <cstdint>

namespace tracestep::cpu {

// A row-major matrix [outer, k] seen through strides, one of which is 1.
struct FloatMatrix {
  const float* data;
  std::int64_t outer_stride, k_stride;
};

// c[m, n] = a bᵀ with a: [m, k], b: [n, k]; on the calling thread alone, so that bits depend on the
// sizes only.
void onednn_multiply(std::int64_t m, std::int64_t n, std::int64_t k, const FloatMatrix& a,
                     const FloatMatrix& b, float* c, std::int64_t ldc);

}  // namespace tracestep::cpu

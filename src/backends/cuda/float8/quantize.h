// A matrix in 8-bit codes and, from the same read, its transpose.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"

namespace tracestep::cuda {

struct Quantization {
  const void* x = nullptr;  // [rows, columns] of float32, bfloat16 or float16
  DType dtype = DType::kF32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;  // elements from row to row
  DType code_dtype = DType::kF8E4M3;
  float largest = 0;  // magnitude among the codes
  // Each may be null: nobody reads it.
  std::uint8_t* codes = nullptr;       // [rows, columns]
  std::uint8_t* transposed = nullptr;  // [columns, rows]
  float* scale = nullptr;
  std::uint32_t* maxima = nullptr;  // workspace: as many as quantize_parts() says
};

// Queues two kernels: the largest magnitude, in parts, then tiles of codes.
cudaError_t quantize(const Quantization& q, const LaunchStream& stream);

}  // namespace tracestep::cuda

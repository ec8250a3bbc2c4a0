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
  float limit = 0;  // the largest magnitude among the codes
  // Each may be null: nobody reads it.
  std::uint8_t* codes = nullptr;       // [rows, columns]
  std::uint8_t* transposed = nullptr;  // [columns, rows]
  float* scale = nullptr;
  // The largest magnitude in the step before, which `largest` may replace in place; null: the scale
  // is that of x.
  const float* last = nullptr;
  float* largest = nullptr;  // of x; may be null; only with `last`
  float room = 1;  // how many times as large, or small, magnitudes may be for the scale to fit
  // Workspace: of the parts of quantize_parts(), or of quantize_tiles() and one more with `last`.
  std::uint32_t* maxima = nullptr;
};

// Queues two kernels: the largest magnitude, in parts, then tiles of codes. With `last` instead
// codes with its scale, then the check whether that fits, which writes them again where it does
// not.
cudaError_t quantize(const Quantization& q, const LaunchStream& stream);

}  // namespace tracestep::cuda

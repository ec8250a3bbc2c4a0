// Quantizes a matrix to 8-bit codes and, from the same read, its transpose.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"

namespace tracestep::cuda {

struct Quantization {
  const void* x = nullptr;  // The matrix [rows, columns] of float32, bfloat16 or float16.
  DType dtype = DType::kF32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;  // The distance in elements from row to row.
  DType code_dtype = DType::kF8E4M3;
  float limit = 0;  // The largest magnitude that a code can have.
  // The results; each may be nullptr if nobody reads it.
  std::uint8_t* codes = nullptr;       // [rows, columns]
  std::uint8_t* transposed = nullptr;  // Transposed codes: [columns, rows].
  float* scale = nullptr;
  // The largest magnitude of x in the step before, whose storage `largest` may share; nullptr: the
  // scale comes from x itself.
  const float* last = nullptr;
  float* largest = nullptr;  // The largest magnitude of x, only with `last`; may be nullptr.
  // How many times as large or as small as before magnitudes may be for the old scale to be used.
  float room = 1;
  // Workspace: quantize_parts() elements, one for each part; or, with `last`, quantize_tiles() + 1,
  // one for each tile and one for `last`.
  std::uint32_t* maxima = nullptr;
};

// Queues two kernels: the first finds the largest magnitude of each part, the second writes tiles
// of codes. With `last`, the first writes codes with the scale of `last`, and the second checks
// whether that scale fits, and writes them again if not.
cudaError_t quantize(const Quantization& q, const LaunchStream& stream);

}  // namespace tracestep::cuda

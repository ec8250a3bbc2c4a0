// Computes swiglu, or its gradients, as 8-bit codes and, from the same read, transposed codes.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"

namespace tracestep::cuda {

struct Rows {
  const void* data = nullptr;
  std::int64_t leading = 0;  // The distance in elements from row to row.
};

struct QuantizedSwiglu {
  Rows dy, gate, up;         // Operands [rows, columns] of `dtype`.
  bool is_gradient = false;  // True: the gradients; false: swiglu itself, without dy.
  DType dtype = DType::kF32;
  std::int64_t rows = 0, columns = 0;
  DType code_dtype = DType::kF8E4M3;
  float limit = 0;  // The largest magnitude that a code can have.
  // Results; nullptr: not read. For gradients, columns of the gate come before those of up. Codes:
  // [rows, columns], or [rows, 2 columns].
  std::uint8_t* codes = nullptr;       // [rows, columns], or [rows, 2 columns]
  std::uint8_t* transposed = nullptr;  // Transposed codes: [columns, rows], or [2 columns, rows].
  float* scale = nullptr;
  const float* last = nullptr;  // The largest magnitude in the step before.
  float* largest = nullptr;     // The largest magnitude of this step; may be nullptr.
  // How many times as large or as small as before magnitudes may be for the old scale to be used.
  float room = 1;
  // Workspace of quantize_tiles() + 1 elements, one for each tile and one for `last`.
  std::uint32_t* maxima = nullptr;
};

// Queues two kernels: the first writes codes with the scale of the step before; the second checks
// whether that scale fits, and writes them again if not.
cudaError_t quantize_swiglu(const QuantizedSwiglu& q, const LaunchStream& stream);

}  // namespace tracestep::cuda

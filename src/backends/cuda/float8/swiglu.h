// swiglu, or its gradients, in 8-bit codes and, from the same read, transposed ones.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "base/dtype.h"

namespace tracestep::cuda {

struct Rows {
  const void* data = nullptr;
  std::int64_t leading = 0;  // elements from row to row
};

struct QuantizedSwiglu {
  Rows dy, gate, up;         // [rows, columns] of `dtype`
  bool is_gradient = false;  // otherwise swiglu itself, without dy
  DType dtype = DType::kF32;
  std::int64_t rows = 0, columns = 0;
  DType code_dtype = DType::kF8E4M3;
  float limit = 0;  // the largest magnitude among the codes
  // Results; nullptr: nobody reads it. Of a gradient, the gate's stands beside that of up.
  std::uint8_t* codes = nullptr;       // [rows, columns], or [rows, 2 columns]
  std::uint8_t* transposed = nullptr;  // [columns, rows], or [2 columns, rows]
  float* scale = nullptr;
  const float* last = nullptr;  // the largest magnitude of a step before
  float* largest = nullptr;     // of this step; may be null
  float room = 1;  // how many times as large, or small, magnitudes may be for the scale to fit
  std::uint32_t* maxima = nullptr;  // workspace: as many as quantize_tiles() says, and one more
};

// Queues two kernels: codes with the scale of the step before, then the check whether that fits,
// which writes them again where it does not.
cudaError_t quantize_swiglu(const QuantizedSwiglu& q, const LaunchStream& stream);

}  // namespace tracestep::cuda

// Describes tensors for the copy engine. The driver encodes the descriptions; its function is
// obtained through the runtime, so that nothing links against the driver's library.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// A tensor [batch, heads, rows, width] of 16-bit numbers, and the box of rows and columns of one
// head that is copied at a time; box_columns is 64, 32 or 16, which also sets the swizzle width.
struct TensorMapRequest {
  const void* data = nullptr;  // The address; it and all strides are multiples of 16 bytes.
  AttentionStrides strides;
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1, rows = 1, width = 64;
  // The size of the box; columns from `width` on are read as zeros and not written.
  int box_rows = 64, box_columns = 64;
};

cudaError_t encode_tensor_map(const TensorMapRequest& request, CUtensorMap& map);

}  // namespace tracestep::cuda

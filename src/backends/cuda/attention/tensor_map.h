// Descriptions of tensors for the copy engine. The driver encodes them; its function is obtained
// through the runtime, so that nothing links against the driver's library.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// A tensor [batch, heads, rows, width] of 16-bit numbers, in boxes of some rows and columns of one
// head; box_columns: 64, 32 or 16, which is the swizzle width.
struct TensorMapRequest {
  const void* data = nullptr;  // 16-byte aligned, as all strides
  AttentionStrides strides;
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1, rows = 1, width = 64;
  int box_rows = 64, box_columns = 64;  // columns past `width` are read as zeros and not written
};

cudaError_t encode_tensor_map(const TensorMapRequest& request, CUtensorMap& map);

}  // namespace tracestep::cuda

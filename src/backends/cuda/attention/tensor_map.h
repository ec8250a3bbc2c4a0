// Descriptions of tensors for the copy engine. The driver encodes them; its function is obtained
// through the runtime, so that nothing links against the driver's library.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// A tensor [batch, heads, rows, width] of 16-bit numbers, seen as [batch][head][panel][row][column]
// with panels of one swizzle width, in boxes of box_rows rows of one head. A box may be wider than
// the tensor if it is one panel, and narrower if the tensor is whole panels.
struct TensorMapRequest {
  const void* data = nullptr;  // 16-byte aligned, as all strides
  AttentionStrides strides;
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1, rows = 1, width = 64;
  int box_rows = 64, box_width = 64;  // columns past `width` are read as zeros and not written
};

cudaError_t encode_tensor_map(const TensorMapRequest& request, CUtensorMap& map);

}  // namespace tracestep::cuda

#include "backends/cuda/attention/tensor_map.h"

namespace tracestep::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(function);
}

}  // namespace

cudaError_t encode_tensor_map(const TensorMapRequest& request, CUtensorMap& map) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto count = [](int n) { return static_cast<cuuint64_t>(n); };
  // Returns a stride in bytes. That of an axis of one element is never used, but must be valid.
  const auto stride = [](std::int64_t elements, int extent) {
    return extent > 1 ? static_cast<cuuint64_t>(elements) * 2 : cuuint64_t{16};
  };
  const cuuint64_t extents[4] = {count(request.width), count(request.rows), count(request.heads),
                                 count(request.batch)};
  const cuuint64_t strides[3] = {stride(request.strides.row, request.rows),
                                 stride(request.strides.head, request.heads),
                                 stride(request.strides.batch, request.batch)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(request.box_columns),
                             static_cast<cuuint32_t>(request.box_rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = request.box_columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : request.box_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  const CUresult status =
      encode(&map,
             request.dtype == AttentionDType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                   : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             4, const_cast<void*>(request.data), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace tracestep::cuda

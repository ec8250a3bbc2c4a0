// What the op records promise the attention kernels on a GPU, against what the kernels take. Both
// are functions of the shape: no GPU is needed.
#ifdef TRACESTEP_WITH_CUDA
#include <gtest/gtest.h>

#include <utility>

#include "backends/cuda/attention/attention.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

AttentionDType dtype_of(DType dtype) {
  return dtype == DType::kF32    ? AttentionDType::kF32
         : dtype == DType::kBF16 ? AttentionDType::kBF16
                                 : AttentionDType::kF16;
}

TEST(CudaAttentionWorkspaceTest, TheRecordsPromiseWhatTheKernelsTake) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int width : {1, 16, 24, 31, 32, 60, 64, 80, 90, 96, 111, 128, 200, 256}) {
      for (int queries : {1, 127, 128, 1000, 4097}) {
        for (const auto& [heads, group] : {std::pair{1, 1}, {3, 1}, {3, 3}, {48, 1}, {48, 6}}) {
          const AttentionSizes sizes{.heads = heads,
                                     .key_heads = heads / group,
                                     .queries = queries,
                                     .keys = queries + 13,
                                     .width = width,
                                     .dtype = dtype};
          AttentionShape shape;
          shape.dtype = dtype_of(dtype);
          shape.heads = heads;
          shape.key_heads = heads / group;
          shape.queries = queries;
          shape.keys = queries + 13;
          shape.width = width;
          const std::int64_t forward = cuda_attention_forward_bytes(sizes);
          const std::int64_t backward = cuda_attention_backward_bytes(sizes);
          EXPECT_EQ(forward, attention_forward_workspace(shape, true)) << width << " " << queries;
          EXPECT_EQ(backward, attention_backward_workspace(shape, true)) << width << " " << queries;
          EXPECT_GE(forward, attention_forward_workspace(shape, false));
          EXPECT_GE(backward, attention_backward_workspace(shape, false));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tracestep::cuda
#endif

// Portable attention backward, bfloat16.
#include "backends/cuda/attention/portable_backward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Numbers as in portable_bf16_forward.cu, of the kernel for dK and dV and of that for dQ.
cudaError_t backward_bf16(int width, const BackwardParams& keys, const BackwardParams& queries,
                          cudaStream_t stream) {
  constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries;
  const auto both = [&](auto launch_keys, auto launch_queries) {
    const cudaError_t status = launch_queries(queries, stream);
    return status != cudaSuccess ? status : launch_keys(keys, stream);
  };
  switch (width) {
    case 16:
      return both(launch_backward<BF16, 1, 16, 2, 4, 64, 2, kKeysValues>,
                  launch_backward<BF16, 1, 16, 2, 4, 64, 2, kQueries>);
    case 32:
      return both(launch_backward<BF16, 1, 32, 2, 4, 64, 2, kKeysValues>,
                  launch_backward<BF16, 1, 32, 2, 4, 64, 2, kQueries>);
    case 64:
      return both(launch_backward<BF16, 1, 64, 2, 4, 32, 2, kKeysValues>,
                  launch_backward<BF16, 1, 64, 2, 4, 64, 2, kQueries>);
    case 80:
      return both(launch_backward<BF16, 1, 80, 1, 4, 64, 2, kKeysValues>,
                  launch_backward<BF16, 1, 80, 2, 4, 32, 2, kQueries>);
    case 96:
      return both(launch_backward<BF16, 1, 96, 2, 4, 64, 2, kKeysValues, 2>,
                  launch_backward<BF16, 1, 96, 2, 4, 32, 2, kQueries>);
    case 128:
      return both(launch_backward<BF16, 1, 128, 2, 4, 64, 2, kKeysValues, 2>,
                  launch_backward<BF16, 1, 128, 2, 4, 32, 2, kQueries>);
    default:
      return both(launch_backward<BF16, 1, 256, 1, 8, 32, 1, kKeysValues, 2>,
                  launch_backward<BF16, 1, 256, 1, 8, 32, 1, kQueries>);
  }
}

}  // namespace tracestep::cuda::portable

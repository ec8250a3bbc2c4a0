// Portable attention backward, float32 operands in two parts.
#include "backends/cuda/attention/portable_backward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Numbers as in float32_forward.cu, of the kernel for dK and dV and of that for dQ.
cudaError_t backward_split(int width, const BackwardParams& keys, const BackwardParams& queries,
                           cudaStream_t stream) {
  constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries;
  const auto both = [&](auto launch_keys, auto launch_queries) {
    const cudaError_t status = launch_queries(queries, stream);
    return status != cudaSuccess ? status : launch_keys(keys, stream);
  };
  switch (width) {
    case 16:
      return both(launch_backward<F16, 2, 16, 2, 4, 32, 2, kKeysValues>,
                  launch_backward<F16, 2, 16, 2, 4, 32, 2, kQueries>);
    case 32:
      return both(launch_backward<F16, 2, 32, 2, 4, 32, 2, kKeysValues>,
                  launch_backward<F16, 2, 32, 2, 4, 32, 2, kQueries>);
    case 64:
      return both(launch_backward<F16, 2, 64, 2, 4, 32, 2, kKeysValues>,
                  launch_backward<F16, 2, 64, 2, 4, 32, 2, kQueries>);
    case 80:
      return both(launch_backward<F16, 2, 80, 1, 8, 32, 1, kKeysValues>,
                  launch_backward<F16, 2, 80, 1, 8, 32, 1, kQueries>);
    case 96:
      return both(launch_backward<F16, 2, 96, 1, 8, 32, 1, kKeysValues>,
                  launch_backward<F16, 2, 96, 1, 8, 32, 1, kQueries>);
    case 128:
      return both(launch_backward<F16, 2, 128, 1, 8, 32, 1, kKeysValues>,
                  launch_backward<F16, 2, 128, 1, 8, 32, 1, kQueries>);
    default: {
      const cudaError_t status = both(launch_backward<F16, 2, 256, 1, 4, 16, 1, Gradient::kKeys>,
                                      launch_backward<F16, 2, 256, 1, 4, 16, 1, kQueries>);
      return status != cudaSuccess
                 ? status
                 : launch_backward<F16, 2, 256, 1, 4, 16, 1, Gradient::kValues>(keys, stream);
    }
  }
}

}  // namespace tracestep::cuda::portable

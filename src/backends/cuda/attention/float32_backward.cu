// Portable attention backward, float32 operands in two parts.
#include "backends/cuda/attention/portable_backward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Numbers as in float32_forward.cu, of the kernel for dK and dV and of that for dQ.
cudaError_t backward_split(int width, const BackwardParams& keys, const BackwardParams& queries,
                           cudaStream_t stream) {
  constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries,
                 kKeys = Gradient::kKeys, kValues = Gradient::kValues;
  const auto both = [&](auto launch_keys, auto launch_queries) {
    const cudaError_t status = launch_queries(queries, stream);
    return status != cudaSuccess ? status : launch_keys(keys, stream);
  };
  // dK and dV of wide heads do not fit in the registers together.
  const auto wide = [&](auto launch_queries, auto launch_keys, auto launch_values) {
    const cudaError_t status = both(launch_keys, launch_queries);
    return status != cudaSuccess ? status : launch_values(keys, stream);
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
      return both(launch_backward<F16, 2, 80, 1, 4, 32, 2, kKeysValues>,
                  launch_backward<F16, 2, 80, 1, 4, 32, 2, kQueries>);
    case 96:
      return both(launch_backward<F16, 2, 96, 1, 4, 32, 2, kKeysValues>,
                  launch_backward<F16, 2, 96, 1, 4, 32, 2, kQueries>);
    case 128:
      if (has_shared_memory(BackwardShared<2, 128, 1, 8, 32, kKeysValues, 1>::kBytes)) {
        return both(launch_backward<F16, 2, 128, 1, 8, 32, 1, kKeysValues>,
                    launch_backward<F16, 2, 128, 1, 8, 32, 1, kQueries>);
      }
      return both(launch_backward<F16, 2, 128, 1, 4, 32, 1, kKeysValues>,
                  launch_backward<F16, 2, 128, 1, 4, 32, 1, kQueries>);
    default:
      if (has_shared_memory(BackwardShared<2, 256, 1, 4, 16, kQueries, 1>::kBytes)) {
        return wide(launch_backward<F16, 2, 256, 1, 4, 16, 1, kQueries>,
                    launch_backward<F16, 2, 256, 1, 4, 16, 1, kKeys>,
                    launch_backward<F16, 2, 256, 1, 4, 16, 1, kValues>);
      }
      return wide(launch_backward<F16, 2, 256, 1, 2, 16, 1, kQueries>,
                  launch_backward<F16, 2, 256, 1, 2, 16, 1, kKeys>,
                  launch_backward<F16, 2, 256, 1, 2, 16, 1, kValues>);
  }
}

}  // namespace tracestep::cuda::portable

// Portable attention backward, float32 operands in two parts.
#include "backends/cuda/attention/portable_backward_launch.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Launches the kernels for dQ, dK and dV, each in the first configuration that fits the device.
cudaError_t backward_split(int width, const BackwardParams& keys, const BackwardParams& queries,
                           cudaStream_t stream) {
  constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries,
                 kKeys = Gradient::kKeys, kValues = Gradient::kValues;
  const auto both = [&](auto of_queries, auto of_keys) {
    const cudaError_t status = of_queries.launch(queries, stream);
    return status != cudaSuccess ? status : of_keys.launch(keys, stream);
  };
  switch (width) {
    case 16:
      return both(FirstOf<kBackward<F16, 2, 16, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 16, 2, 4, 32, 2, kKeysValues>>());
    case 32:
      return both(FirstOf<kBackward<F16, 2, 32, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 32, 2, 4, 32, 2, kKeysValues>>());
    case 64:
      return both(FirstOf<kBackward<F16, 2, 64, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 64, 2, 4, 32, 2, kKeysValues>>());
    case 80:
      return both(FirstOf<kBackward<F16, 2, 80, 1, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 80, 1, 4, 32, 2, kKeysValues>>());
    case 96:
      return both(FirstOf<kBackward<F16, 2, 96, 1, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 96, 1, 4, 32, 2, kKeysValues>>());
    case 128:
      return both(FirstOf<kBackward<F16, 2, 128, 1, 8, 32, 1, kQueries>,
                          kBackward<F16, 2, 128, 1, 4, 32, 1, kQueries>,
                          kBackward<F16, 2, 128, 1, 4, 16, 1, kQueries>>(),
                  FirstOf<kBackward<F16, 2, 128, 1, 8, 32, 1, kKeysValues>,
                          kBackward<F16, 2, 128, 1, 4, 32, 1, kKeysValues>,
                          kBackward<F16, 2, 128, 1, 4, 16, 1, kKeysValues>>());
    default: {  // dK and dV of wide heads do not fit in the registers together
      const cudaError_t status = both(FirstOf<kBackward<F16, 2, 256, 1, 4, 16, 1, kQueries>,
                                              kBackward<F16, 2, 256, 1, 2, 16, 1, kQueries>,
                                              kBackward<F16, 2, 256, 1, 1, 16, 1, kQueries>>(),
                                      FirstOf<kBackward<F16, 2, 256, 1, 4, 16, 1, kKeys>,
                                              kBackward<F16, 2, 256, 1, 2, 16, 1, kKeys>,
                                              kBackward<F16, 2, 256, 1, 1, 16, 1, kKeys>>());
      if (status != cudaSuccess) return status;
      return FirstOf<kBackward<F16, 2, 256, 1, 4, 16, 1, kValues>,
                     kBackward<F16, 2, 256, 1, 2, 16, 1, kValues>>::launch(keys, stream);
    }
  }
}

}  // namespace tracestep::cuda::portable

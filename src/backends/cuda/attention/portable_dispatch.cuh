// Chooses the configuration of the portable kernels for 16-bit operands of each width. The numbers
// after the width: 16-row blocks a warp, warps, rows a step, blocks a multiprocessor; as many as
// registers and shared memory (227 KiB) allow, chosen by measurement. The smaller ones of a list
// are for GPUs with less shared memory.
#pragma once

#include "backends/cuda/attention/portable_backward_launch.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

template <class E>
cudaError_t forward_of_width(int width, const ForwardParams& params, cudaStream_t stream) {
  switch (width) {
    case 16: return FirstOf<kForward<E, 1, 16, 2, 4, 64, 2>>::launch(params, stream);
    case 32: return FirstOf<kForward<E, 1, 32, 2, 4, 64, 2>>::launch(params, stream);
    case 64: return FirstOf<kForward<E, 1, 64, 2, 4, 64, 2>>::launch(params, stream);
    case 80: return FirstOf<kForward<E, 1, 80, 2, 4, 64, 2>>::launch(params, stream);
    case 96: return FirstOf<kForward<E, 1, 96, 2, 4, 64, 2>>::launch(params, stream);
    case 128: return FirstOf<kForward<E, 1, 128, 2, 4, 64, 2>>::launch(params, stream);
    default:
      return FirstOf<kForward<E, 1, 256, 1, 8, 64, 1>, kForward<E, 1, 256, 1, 8, 32, 1>,
                     kForward<E, 1, 256, 1, 4, 32, 1>>::launch(params, stream);
  }
}

// Launches the kernel for dQ, then that for dK and dV, each in the first configuration that fits.
template <class E>
cudaError_t backward_of_width(int width, const BackwardParams& keys, const BackwardParams& queries,
                              cudaStream_t stream) {
  constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries;
  const auto both = [&](auto of_queries, auto of_keys) {
    const cudaError_t status = of_queries.launch(queries, stream);
    return status != cudaSuccess ? status : of_keys.launch(keys, stream);
  };
  switch (width) {
    case 16:
      return both(FirstOf<kBackward<E, 1, 16, 2, 4, 64, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 16, 2, 4, 64, 2, kKeysValues>>());
    case 32:
      return both(FirstOf<kBackward<E, 1, 32, 2, 4, 64, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 32, 2, 4, 64, 2, kKeysValues>>());
    case 64:
      return both(FirstOf<kBackward<E, 1, 64, 2, 4, 64, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 64, 2, 4, 32, 2, kKeysValues>>());
    case 80:
      return both(FirstOf<kBackward<E, 1, 80, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 80, 1, 4, 64, 2, kKeysValues>>());
    case 96:
      return both(FirstOf<kBackward<E, 1, 96, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 96, 2, 4, 64, 2, kKeysValues, 2>>());
    case 128:
      return both(FirstOf<kBackward<E, 1, 128, 2, 4, 32, 2, kQueries>>(),
                  FirstOf<kBackward<E, 1, 128, 2, 4, 64, 2, kKeysValues, 2>,
                          kBackward<E, 1, 128, 2, 4, 32, 1, kKeysValues, 2>>());
    default:
      return both(FirstOf<kBackward<E, 1, 256, 1, 8, 32, 1, kQueries>,
                          kBackward<E, 1, 256, 1, 4, 16, 1, kQueries>>(),
                  FirstOf<kBackward<E, 1, 256, 1, 8, 32, 1, kKeysValues, 2>,
                          kBackward<E, 1, 256, 1, 2, 32, 1, kKeysValues, 2>>());
  }
}

}  // namespace tracestep::cuda::portable

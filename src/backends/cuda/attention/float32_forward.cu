// Portable attention forward, float32 operands in two parts.
#include "backends/cuda/attention/portable_forward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Launches the first configuration of the forward kernel for this width that fits the device.
cudaError_t forward_split(int width, const ForwardParams& params, cudaStream_t stream) {
  switch (width) {
    case 16: return FirstOf<kForward<F16, 2, 16, 2, 4, 64, 2>>::launch(params, stream);
    case 32: return FirstOf<kForward<F16, 2, 32, 2, 4, 64, 2>>::launch(params, stream);
    case 64: return FirstOf<kForward<F16, 2, 64, 2, 4, 64, 2>>::launch(params, stream);
    case 80: return FirstOf<kForward<F16, 2, 80, 2, 4, 32, 2>>::launch(params, stream);
    case 96: return FirstOf<kForward<F16, 2, 96, 2, 4, 32, 2>>::launch(params, stream);
    case 128:
      return FirstOf<kForward<F16, 2, 128, 1, 8, 64, 1>, kForward<F16, 2, 128, 1, 8, 32, 1>,
                     kForward<F16, 2, 128, 1, 4, 32, 1>>::launch(params, stream);
    default:
      return FirstOf<kForward<F16, 2, 256, 1, 4, 32, 1>, kForward<F16, 2, 256, 1, 4, 16, 1>,
                     kForward<F16, 2, 256, 1, 2, 16, 1>>::launch(params, stream);
  }
}

}  // namespace tracestep::cuda::portable

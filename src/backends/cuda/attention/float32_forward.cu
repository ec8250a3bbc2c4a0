// Portable attention forward, float32 operands in two parts.
#include "backends/cuda/attention/portable_forward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Numbers: 16-row blocks a warp, warps, keys a step, blocks a multiprocessor; what registers and
// shared memory (227 KiB) allow, chosen by measurement.
cudaError_t forward_split(int width, const ForwardParams& params, cudaStream_t stream) {
  switch (width) {
    case 16: return launch_forward<F16, 2, 16, 2, 4, 64, 2>(params, stream);
    case 32: return launch_forward<F16, 2, 32, 2, 4, 64, 2>(params, stream);
    case 64: return launch_forward<F16, 2, 64, 2, 4, 64, 2>(params, stream);
    case 80: return launch_forward<F16, 2, 80, 2, 4, 32, 2>(params, stream);
    case 96: return launch_forward<F16, 2, 96, 2, 4, 32, 2>(params, stream);
    case 128:
      return has_shared_memory(ForwardShared<2, 128, 1, 8, 64>::kBytes)
                 ? launch_forward<F16, 2, 128, 1, 8, 64, 1>(params, stream)
                 : launch_forward<F16, 2, 128, 1, 8, 32, 1>(params, stream);
    default:
      return has_shared_memory(ForwardShared<2, 256, 1, 4, 32>::kBytes)
                 ? launch_forward<F16, 2, 256, 1, 4, 32, 1>(params, stream)
                 : launch_forward<F16, 2, 256, 1, 4, 16, 1>(params, stream);
  }
}

}  // namespace tracestep::cuda::portable

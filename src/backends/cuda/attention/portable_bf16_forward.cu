// Portable attention forward, bfloat16.
#include "backends/cuda/attention/portable_forward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {

// Numbers: 16-row blocks a warp, warps, keys a step, blocks a multiprocessor; what registers and
// shared memory (227 KiB) allow, chosen by measurement.
cudaError_t forward_bf16(int width, const ForwardParams& params, cudaStream_t stream) {
  switch (width) {
    case 16: return launch_forward<BF16, 1, 16, 2, 4, 64, 2>(params, stream);
    case 32: return launch_forward<BF16, 1, 32, 2, 4, 64, 2>(params, stream);
    case 64: return launch_forward<BF16, 1, 64, 2, 4, 64, 2>(params, stream);
    case 80: return launch_forward<BF16, 1, 80, 2, 4, 64, 2>(params, stream);
    case 96: return launch_forward<BF16, 1, 96, 2, 4, 64, 2>(params, stream);
    case 128: return launch_forward<BF16, 1, 128, 2, 4, 64, 2>(params, stream);
    default:
      return has_shared_memory(ForwardShared<1, 256, 1, 8, 64>::kBytes)
                 ? launch_forward<BF16, 1, 256, 1, 8, 64, 1>(params, stream)
                 : launch_forward<BF16, 1, 256, 1, 8, 32, 1>(params, stream);
  }
}

}  // namespace tracestep::cuda::portable

// Portable attention forward, bfloat16.
#include "backends/cuda/attention/portable_dispatch.cuh"

namespace tracestep::cuda::portable {

cudaError_t forward_bf16(int width, const ForwardParams& params, cudaStream_t stream) {
  return forward_of_width<BF16>(width, params, stream);
}

}  // namespace tracestep::cuda::portable

// Portable attention forward, float16, as it is or as one part of float32 operands.
#include "backends/cuda/attention/portable_dispatch.cuh"

namespace tracestep::cuda::portable {

cudaError_t forward_f16(int width, const ForwardParams& params, cudaStream_t stream) {
  return forward_of_width<F16>(width, params, stream);
}

}  // namespace tracestep::cuda::portable

// Portable attention backward, float16, as it is or as one part of float32 operands.
#include "backends/cuda/attention/portable_dispatch.cuh"

namespace tracestep::cuda::portable {

cudaError_t backward_f16(int width, const BackwardParams& keys, const BackwardParams& queries,
                         cudaStream_t stream) {
  return backward_of_width<F16>(width, keys, queries, stream);
}

}  // namespace tracestep::cuda::portable

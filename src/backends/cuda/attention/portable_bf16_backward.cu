// Portable attention backward, bfloat16.
#include "backends/cuda/attention/portable_dispatch.cuh"

namespace tracestep::cuda::portable {

cudaError_t backward_bf16(int width, const BackwardParams& keys, const BackwardParams& queries,
                          cudaStream_t stream) {
  return backward_of_width<BF16>(width, keys, queries, stream);
}

}  // namespace tracestep::cuda::portable

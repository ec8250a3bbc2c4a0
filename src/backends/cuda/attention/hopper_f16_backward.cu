// The Hopper backward kernels of float16.
#include "backends/cuda/attention/hopper_dispatch.cuh"

namespace tracestep::cuda::hopper {

cudaError_t backward_f16(const AttentionBackward& call, const LaunchStream& stream) {
  return tuned_backward<__half>(call, stream);
}

}  // namespace tracestep::cuda::hopper

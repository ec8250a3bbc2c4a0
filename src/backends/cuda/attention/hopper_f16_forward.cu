// The Hopper forward kernels of float16.
#include "backends/cuda/attention/hopper_dispatch.cuh"

namespace tracestep::cuda::hopper {

cudaError_t forward_f16(const AttentionForward& call, const LaunchStream& stream) {
  return tuned_forward<__half>(call, stream);
}

}  // namespace tracestep::cuda::hopper

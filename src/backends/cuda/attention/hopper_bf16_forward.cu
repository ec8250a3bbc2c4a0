// The Hopper forward kernels of bfloat16.
#include "backends/cuda/attention/hopper_dispatch.cuh"

namespace tracestep::cuda::hopper {

cudaError_t forward_bf16(const AttentionForward& call, const LaunchStream& stream) {
  return tuned_forward<__nv_bfloat16>(call, stream);
}

}  // namespace tracestep::cuda::hopper

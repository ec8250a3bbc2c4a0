// The Hopper backward kernels of bfloat16.
#include "backends/cuda/attention/hopper_dispatch.cuh"

namespace tracestep::cuda::hopper {

cudaError_t backward_bf16(const AttentionBackward& call, const LaunchStream& stream) {
  return tuned_backward<__nv_bfloat16>(call, stream);
}

}  // namespace tracestep::cuda::hopper

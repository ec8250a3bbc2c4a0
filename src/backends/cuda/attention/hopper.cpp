#include "backends/cuda/attention/hopper.h"

namespace tracestep::cuda {

bool hopper_supports(const AttentionShape& shape) {
  return shape.dtype != AttentionDType::kF32 && hopper_attention_width(shape.width) > 0 &&
         shape.queries > 0 && shape.keys > 0 && shape.scale > 0;
}

cudaError_t hopper_forward(const AttentionForward& call, const LaunchStream& stream) {
  return call.shape.dtype == AttentionDType::kF16 ? hopper::forward_f16(call, stream)
                                                  : hopper::forward_bf16(call, stream);
}

cudaError_t hopper_backward(const AttentionBackward& call, const LaunchStream& stream) {
  return call.shape.dtype == AttentionDType::kF16 ? hopper::backward_f16(call, stream)
                                                  : hopper::backward_bf16(call, stream);
}

}  // namespace tracestep::cuda

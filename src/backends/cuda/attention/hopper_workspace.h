// The Hopper family's widths and workspace (planning/cuda_attention.h) for a call's shape.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

inline int hopper_width(int width) {
  return hopper_attention_width(width);
}

using HopperBackwardWorkspace = AttentionWorkspace;

inline HopperBackwardWorkspace hopper_backward_workspace(const AttentionShape& shape) {
  return attention_workspace(shape.extent(), AttentionFamily::kHopper, true);
}

}  // namespace tracestep::cuda

// The first half of a product by parts, for the second (product.cu).
#pragma once

#include "backends/cuda/kernel_launch.h"

namespace tracestep::cuda {

struct SplitSource;

// Fills the parts and scales of both operands.
cudaError_t split_operands(const SplitSource& a, const SplitSource& b, const LaunchStream& stream);

}  // namespace tracestep::cuda

// Operands for measurements: products of zeros run faster than real ones.
#pragma once

#include <cstdint>

#include "backends/cuda/stream.h"

namespace tracestep::cuda {

// Uniform in [-1, 1) for floating dtypes; nothing for others. Queued.
void fill_random(const CudaStream& stream, void* data, std::int64_t count, DType dtype);

}  // namespace tracestep::cuda

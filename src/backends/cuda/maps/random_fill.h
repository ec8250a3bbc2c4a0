// Fills operands for measurements, because products of zeros run faster than those of real numbers.
#pragma once

#include <cstdint>

#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {

// Enqueues a fill with uniform values in [-1, 1) for floating dtypes; does nothing for others.
void fill_random(const CudaStream& stream, void* data, std::int64_t count, DType dtype);

}  // namespace tracestep::cuda

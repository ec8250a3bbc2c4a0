// Fills operands for measurements, because products of zeros run faster than those of real numbers.
#pragma once

#include <cstdint>

#include "backends/cuda/toolkit/stream.h"
#include "runtime/value_filler.h"

namespace tracestep::cuda {

// Enqueues a fill with uniform values in [-1, 1) for floating dtypes; does nothing for others.
void fill_random(const CudaStream& stream, void* data, std::int64_t count, DType dtype);

// Enqueues a fill with these values, with the bits that runtime/value_filler.h makes on the host.
// False, without a fill, for a dtype that is not float32, bfloat16 or float16.
bool fill_uniform(const CudaStream& stream, void* data, std::int64_t count, DType dtype,
                  const UniformValues& values);

}  // namespace tracestep::cuda

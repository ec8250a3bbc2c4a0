// The sum of what two ranks have, outside of a step's kernels: the communicator issues it.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tracestep {

// Issues y = a + b for `count` elements of a floating dtype on a cudaStream_t of the current GPU; y
// may be a or b. All three are aligned to 16 bytes. Throws DeviceError.
void add_on_stream(void* y, const void* a, const void* b, std::int64_t count, DType dtype,
                   void* stream);

}  // namespace tracestep

// What two events around one kernel add to its time, measured with kernels that do nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/gate.h"

namespace tracestep::cuda {

// Nanoseconds to take off the time between two events with one kernel in between. What is left is
// the time by which the kernel makes a row of kernels longer: its own, and that of handing over to
// the next. Waits for the stream; takes some milliseconds. Throws DeviceError.
std::int64_t measure_mark_overhead_ns(cudaStream_t stream, Gate& gate);

}  // namespace tracestep::cuda

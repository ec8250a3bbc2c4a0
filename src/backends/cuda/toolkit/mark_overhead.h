// Measures how much two events around a kernel add to its time, with kernels that do nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/toolkit/gate.h"

namespace tracestep::cuda {

// Returns the nanoseconds to subtract from the time between two events with one kernel in between.
// The difference is how much the kernel lengthens a sequence of kernels: its own time and the
// hand-over to the next one. Waits for the stream; takes some milliseconds. Throws DeviceError.
std::int64_t measure_mark_overhead_ns(cudaStream_t stream, Gate& gate);

}  // namespace tracestep::cuda

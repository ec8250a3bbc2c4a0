// Captures launches on a stream as a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "runtime/device.h"

namespace tracestep::cuda {

// Captures what `issue` enqueues on `stream`; issue() may only enqueue, and must not wait. If it
// throws, the capture ends and the exception is passed on. Throws DeviceError.
std::unique_ptr<CapturedWork> capture_graph(cudaStream_t stream,
                                            const std::function<void()>& issue);

}  // namespace tracestep::cuda

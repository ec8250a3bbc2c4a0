// Launches captured from a stream as a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "runtime/device.h"

namespace tracestep::cuda {

// `issue` only puts work into `stream` and waits for nothing; what it throws ends the capture and
// is passed on. Throws DeviceError.
std::unique_ptr<CapturedWork> capture_graph(cudaStream_t stream,
                                            const std::function<void()>& issue);

}  // namespace tracestep::cuda

// Turns return codes of the CUDA runtime into errors that name the failed call and, in a step, the
// op.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace tracestep::cuda {

// Throws DeviceError{device, call, CUDA's error text}, also when memory is lacking. (The
// allocator's MemorySource returns nullptr in that case instead.)
[[noreturn]] void fail(cudaError_t status, const std::string& call);

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, call);
}

}  // namespace tracestep::cuda

// Checks the status of a call; the message quotes the call as written.
#define TRACESTEP_CUDA(call) ::tracestep::cuda::check(call, #call)

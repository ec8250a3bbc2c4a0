// All places in which the host waits for the device; code that watches for hanging ranks can see
// them (runtime/host_wait.h).
#pragma once

#include <cuda_runtime_api.h>

namespace tracestep::cuda {

// Wait for all work issued so far: on the stream, before the event, or on the device. They throw
// DeviceError with what went wrong on the device.
void wait_for(cudaStream_t stream);
void wait_for(cudaEvent_t event);
void wait_for_device();
// Waits until nothing runs on the stream any more, and ignores errors: for destructors.
void settle(cudaStream_t stream);

}  // namespace tracestep::cuda

// The places where the host waits for the device: all of them can be seen by who watches for
// hanging ranks (runtime/host_wait.h).
#pragma once

#include <cuda_runtime_api.h>

namespace tracestep::cuda {

// Waits for everything issued so far: on the stream, in front of the event, on the device. Throws
// DeviceError with what went wrong there.
void wait_for(cudaStream_t stream);
void wait_for(cudaEvent_t event);
void wait_for_device();
// For destructors: whatever went wrong, nothing on the stream runs any more.
void settle(cudaStream_t stream);

}  // namespace tracestep::cuda

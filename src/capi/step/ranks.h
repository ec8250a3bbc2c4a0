// Processes that train together and exchange data by functions of the caller: small messages, and
// sums of tensors in host memory. On GPUs NCCL connects them; its id is exchanged by the same
// functions.
#pragma once

#include <memory>

#include "capi/tracestep.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/processes.h"

namespace tracestep::capi {

// Returns the processes of these ranks. Throws Error{kUsage} for impossible numbers.
std::unique_ptr<Processes> processes_of(const tracestep_ranks& ranks);

// Returns this process's communicator of the group, on this device. The device, the processes and
// what they were made of must outlive it. Throws Error{kDevice} if there is no NCCL, and
// DeviceError if it cannot connect them.
std::unique_ptr<Communicator> connected(Processes& processes, const tracestep_ranks& ranks,
                                        Device& device);

}  // namespace tracestep::capi

// Processes that train together by functions of the caller's: what they say to each other, and sums
// of tensors in host memory. On GPUs NCCL connects them, with an id that goes the same way.
#pragma once

#include <memory>

#include "capi/tracestep.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/processes.h"

namespace tracestep::capi {

// Error{kUsage} for ranks that are none.
std::unique_ptr<Processes> processes_of(const tracestep_ranks& ranks);

// This process's end of their group, on this device. Both must outlive it, and so must what
// `processes` was made of. Error{kDevice}: there is no NCCL; DeviceError: it cannot connect them.
std::unique_ptr<Communicator> connected(Processes& processes, const tracestep_ranks& ranks,
                                        Device& device);

}  // namespace tracestep::capi

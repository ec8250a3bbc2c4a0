// Ranks as processes with a GPU each, connected by NCCL, which is found at run time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep {

// "2.28.9"; empty: it is not on this machine, and `problem` says why.
std::string nccl_version(std::string& problem);

// The cudaStream_t of a lane. A device may give its lane 1 another one when it joins a group, so it
// is asked each time.
using StreamOfLane = std::function<void*(int lane)>;

// This process's end of a group of all processes. Collectives are issued on the stream of the lane
// in use; the current device of the calling thread is its device. Sums are in NCCL's order: the
// same bits on all ranks and in every call, which need not be those of sums in host memory.
// Error{kDevice}: there is no NCCL; DeviceError: it cannot connect the ranks.
std::unique_ptr<Communicator> make_nccl_group(Processes& processes, StreamOfLane stream_of_lane);

}  // namespace tracestep

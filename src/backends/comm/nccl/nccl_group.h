// Ranks as processes with a GPU each, connected by NCCL, which is found at run time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/communicator.h"
#include "runtime/processes.h"

namespace tracestep {

// Returns NCCL's version, "2.28.9"; "" and a reason in `problem` if it is not on this machine.
std::string nccl_version(std::string& problem);

// Returns the cudaStream_t of a lane. It is called at each change of lane, because a device may
// change the stream of its lane 1 when it joins a group.
using StreamOfLane = std::function<void*(int lane)>;

// Returns this process's communicator in a group of all processes. It issues collectives on the
// stream of the current lane; the calling thread's current device must be the communicator's. Sums
// are in NCCL's order: their bits are the same on all ranks and in every call, but may differ from
// those of sums in host memory. Throws Error{kDevice} if there is no NCCL, and DeviceError if it
// cannot connect the ranks.
std::unique_ptr<Communicator> make_nccl_group(Processes& processes, StreamOfLane stream_of_lane);

}  // namespace tracestep

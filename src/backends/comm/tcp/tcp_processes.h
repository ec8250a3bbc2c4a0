// Processes that were started with the variables of torchrun and share no MPI: the first one
// listens, the others connect. What they tell each other is small; tensors go elsewhere (NCCL).
#pragma once

#include <memory>

#include "base/launched.h"
#include "runtime/processes.h"

namespace tracestep {

// Waits for all of them, at most `timeout_s`. From then on a thread watches the connections: when a
// process fails or is gone, all end. Error{kFailed}: the port is taken, or one does not come.
std::unique_ptr<Processes> join_tcp(const Launched& self, double timeout_s);

}  // namespace tracestep

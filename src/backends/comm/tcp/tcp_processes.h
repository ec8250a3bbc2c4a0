// Processes that were started with the variables of torchrun and share no MPI: the first one
// listens, the others connect. What they tell each other is small; tensors go elsewhere (NCCL).
#pragma once

#include <memory>
#include <optional>

#include "backends/comm/tcp/secret.h"
#include "base/launched.h"
#include "runtime/processes.h"

namespace tracestep {

// Waits for all of them, at most `timeout_s`; who is one of them is proved by the run's secret
// (meeting.h). From then on a thread watches the connections: when a process fails, is gone or
// sends what this program does not send, all end. Errors as meet().
std::unique_ptr<Processes> join_tcp(const Launched& self, const std::optional<Secret>& secret,
                                    double timeout_s);

}  // namespace tracestep

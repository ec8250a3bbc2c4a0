// Processes that were started with the variables of torchrun and share no MPI: the first one
// listens, the others connect. What they tell each other is small; tensors go elsewhere (NCCL).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backends/comm/launch/launched.h"
#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/secret.h"
#include "runtime/processes.h"

namespace tracestep {

// Waits for all processes of the run, at most `timeout_s`; the run's secret proves who is one of
// them (meet()). From then on a thread watches the connections: when a process fails, is gone or
// sends what this program does not send, all end. Errors as meet().
std::unique_ptr<Processes> join_tcp(const Launched& self, const std::optional<Secret>& secret,
                                    double timeout_s);

// How the processes of a run find each other: the first one listens, and takes those that prove
// that they know the run's secret (handshake.h). Others are dropped, and waiting goes on. Process
// 0: a connection to each of the others, in their order; another one: to process 0. Without a
// secret they meet on this machine alone, where every user could join. Error{kUsage}: there is no
// secret for another host. Error{kFailed}: the port is taken, the host is unknown, two processes
// are the same rank, or not all came within `timeout_s`.
std::vector<Connection> meet(const Launched& self, const std::optional<Secret>& secret,
                             double timeout_s);

}  // namespace tracestep

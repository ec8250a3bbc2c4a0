// Processes that were started with torchrun's variables and have no MPI: the first one listens, and
// the others connect. They exchange small data; tensors are sent in other ways (NCCL).
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

// Connects the processes of a run: the first one listens, and accepts those that prove that they
// know the run's secret (handshake.h). Others are dropped, and it keeps waiting. Returns for
// process 0 a connection to each of the others, by rank; for another process, its connection to
// process 0. Without a secret, processes only meet on this machine, where every user could join.
// Throws Error{kUsage} if there is no secret for another host, and Error{kFailed} if the port is
// taken, the host is unknown, two processes have the same rank, or not all came within `timeout_s`.
std::vector<Connection> meet(const Launched& self, const std::optional<Secret>& secret,
                             double timeout_s);

}  // namespace tracestep

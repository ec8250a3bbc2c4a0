// How the processes of a run find each other: the first one listens, and takes those that prove
// that they know the run's secret (handshake.h). Others are dropped, and waiting goes on.
#pragma once

#include <optional>
#include <vector>

#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/secret.h"
#include "base/launched.h"

namespace tracestep {

// Process 0: a connection to each of the others, in their order; another one: to process 0. Without
// a secret they meet on this machine alone, where every user could join. Error{kUsage}: there is no
// secret for another host. Error{kFailed}: the port is taken, the host is unknown, two processes
// are the same rank, or not all came within `timeout_s`.
std::vector<Connection> meet(const Launched& self, const std::optional<Secret>& secret,
                             double timeout_s);

}  // namespace tracestep

// Ranks as threads of one process: they read and write each other's tensors directly. For tests and
// for runs on one host.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator.h"

namespace tracestep {

inline constexpr double kNoTimeout = 0.0;

// Returns the communicators of a new group, by rank; each is used by one thread at a time. They
// share the group, which lives as long as one of them. If a rank keeps others waiting for
// `timeout_s` seconds, the process ends with a line on stderr and status 1, because nothing else
// can end a thread that hangs.
std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks,
                                                            double timeout_s = kNoTimeout);

}  // namespace tracestep

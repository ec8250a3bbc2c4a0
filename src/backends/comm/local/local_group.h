// Ranks as threads of one process: they read and write each other's tensors directly. For tests and
// for runs on one host.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator.h"

namespace tracestep {

// The ranks of a group, in order; each is used by one thread at a time. They share the group, which
// lives as long as one of them.
std::vector<std::unique_ptr<Communicator>> make_local_group(int ranks);

}  // namespace tracestep

// The kernels of collectives: they hand the operands to the communicator of the device's group.
#pragma once

#include "runtime/kernel.h"

namespace tracestep {

// Adds all_reduce, reduce_scatter and all_gather. Preparing one throws Error{kUsage} if the device
// belongs to no group, or to one that lacks the subgroups which the program uses.
void add_group_kernels(KernelTable& table);
// Adds the kernels of add_group_kernels(), and own_part, own_indices and on_first_rank, for devices
// whose memory the host can access.
void add_collective_kernels(KernelTable& table);

}  // namespace tracestep

// The kernels of collectives: they hand the operands to the communicator of the device's group.
#pragma once

#include "runtime/kernel.h"

namespace tracestep {

// all_reduce, reduce_scatter and all_gather. Preparing one throws Error{kUsage} when the device
// belongs to no group, or to one that is not made up of groups as the program wants.
void add_group_kernels(KernelTable& table);
// Adds these, own_part, own_indices and on_first_rank, for devices whose memory the host can read
// and write.
void add_collective_kernels(KernelTable& table);

}  // namespace tracestep

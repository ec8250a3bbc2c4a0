// The kernels of collectives for devices whose memory the host can read and write: they hand the
// operands to the communicator of the device's group.
#pragma once

#include "runtime/kernel.h"

namespace tracestep {

// all_reduce, reduce_scatter, all_gather and own_part. Preparing one throws Error{kUsage} when the
// device belongs to no group, or to one of another size than the program was made for.
void add_collective_kernels(KernelTable& table);

}  // namespace tracestep

// Multiplies a tensor by a number, for kernels that need that in addition to their own work.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

// Queues y = scale·x of the call's result y and its last operand x, rounded once; both are of one
// floating dtype and may share storage. Throws DeviceError where the launch fails.
void multiply_last_operand(const KernelCall& call, float scale);

}  // namespace tracestep::cuda

// global_norm: one kernel reads all operands, however many there are.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void global_norm(const KernelCall& call);

}  // namespace tracestep::cuda

// The transpose of gather: a file of its own, since sums need an order.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void scatter_add(const KernelCall& call);

}  // namespace tracestep::cuda

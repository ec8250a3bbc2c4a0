// Kernels for codes of weights in parts (ops/part_codes.cpp), in a file of their own in the family
// of float8.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void add_part_codes_kernels(KernelTable& table);

}  // namespace tracestep::cuda

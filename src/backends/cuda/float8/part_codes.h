// Codes of weights in parts (ops/part_codes.cpp), a file of its own in the family of float8.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void add_part_codes_kernels(KernelTable& table);

}  // namespace tracestep::cuda

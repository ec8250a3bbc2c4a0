// The elementwise kernels by family: a file each, so that none is long to compile.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void add_unary_kernels(KernelTable& table);
void add_binary_kernels(KernelTable& table);
void add_comparison_kernels(KernelTable& table);

}  // namespace tracestep::cuda

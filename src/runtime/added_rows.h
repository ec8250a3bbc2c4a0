// Products whose rows are added to several tensors (matmul_add_rows, scaled_matmul_add), for any
// back end that adds to one: a single product where these tensors follow one another in memory,
// which is known when it is launched, and else a product for each of them.
#pragma once

#include <functional>
#include <memory>

#include "runtime/prepared_kernel.h"

namespace tracestep {

// Prepares a product that is added to one tensor: a call of matmul_add, or of scaled_matmul_add.
using PreparesSum = std::function<std::unique_ptr<PreparedKernel>(KernelSpec)>;

// Prepares a product with rows added to several tensors. `spec`: with the largest part's workspace.
std::unique_ptr<PreparedKernel> prepare_added_rows(const KernelSpec& spec,
                                                   const PreparesSum& prepare);

}  // namespace tracestep

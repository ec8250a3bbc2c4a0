// Running small programs on a device by the names of their leaves and outputs.
#pragma once

#include <map>
#include <string>

#include "base/host_tensor.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep::testing {

using Tensors = std::map<std::string, HostTensor, std::less<>>;

// Makes the program executable on `device` (ops without a kernel decomposed, copies explicit),
// runs it once, eagerly, and returns outputs by name and updated leaves under the leaf's name.
// Leaves are converted to the leaf's dtype; a missing one is an error, except states (zero).
// Also checks that the peak of requested bytes is the predicted one, to the byte.
Tensors run_program(Device& device, const Program& program, const Tensors& leaves);

// The same on a fresh guarded reference device, after as_float64: the oracle's answer.
Tensors reference_values(const Program& program, const Tensors& leaves);

// Random values for every leaf (`low` to `high`; integers in [0, high]).
Tensors random_leaves(const Program& program, double low = -2.0, double high = 2.0);

}  // namespace tracestep::testing

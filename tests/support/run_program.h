// Running small programs on a device by the names of their leaves and outputs.
#pragma once

#include <map>
#include <string>

#include "base/host_tensor.h"
#include "exec/executor.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep::testing {

using Tensors = std::map<std::string, HostTensor, std::less<>>;

// Sets inputs, and parameters and states in the store. Leaves are converted to the leaf's dtype; a
// missing one is an error, except states, which keep their value.
void set_leaves(Executor& executor, Store& store, const Tensors& leaves);

// The program as `device` can run it: ops without a kernel decomposed, copies explicit.
Program executable(const Program& program, const Device& device);

// Runs an executable program once and returns outputs by name and updated leaves under the leaf's
// name. States without a value are zero. Also checks that the peak of requested bytes is the
// predicted one, to the byte.
Tensors run_once(ExecutorKind kind, Device& device, const Program& program, const Tensors& leaves);

// Makes the program executable and runs it once, eagerly.
Tensors run_eagerly(Device& device, const Program& program, const Tensors& leaves);

// As run_eagerly(). On a device with a guarded allocator also checks that the compiled executor,
// which watches its plan there, gives the same bits.
Tensors run_program(Device& device, const Program& program, const Tensors& leaves);

// The results of a fresh guarded reference device, run eagerly after as_float64: the oracle's.
Tensors reference_values(const Program& program, const Tensors& leaves);

// Random values for every leaf (`low` to `high`; integers in [0, high]).
Tensors random_leaves(const Program& program, double low = -2.0, double high = 2.0);

}  // namespace tracestep::testing

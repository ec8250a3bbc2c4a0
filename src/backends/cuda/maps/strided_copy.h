// Copies elements as bits, from an operand of any strides to a dense tensor or a part of one.
#pragma once

#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {

// Where the copied piece begins along an axis, as an integer in device memory. A value outside
// [0, most] is a fault, and nothing is copied.
struct Position {
  const void* data = nullptr;  // The address of one integer; nullptr: the position is 0.
  DType dtype = DType::kI64;
  std::int64_t step = 0;  // The distance in elements from one position to the next.
  std::int64_t most = 0;
  FaultPlace faults;
};

// Copies the elements of `from` (data == nullptr: zeros, with strides of 0) to `to`, a dense tensor
// or a part of one, of the same shape and dtype.
void place(const KernelCall& call, const TensorRef& from, const TensorRef& to,
           const Position& position = {});

// Sets all elements of a dense tensor, or of a part of one, to zero.
void clear(const KernelCall& call, const TensorRef& y);

}  // namespace tracestep::cuda

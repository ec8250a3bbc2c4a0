// Moving elements as bits: an operand of any strides into a dense tensor or a part of it.
#pragma once

#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {

// Where along an axis a piece begins: an integer in device memory. A position outside [0, most] is
// a fault, and nothing is moved.
struct Position {
  const void* data = nullptr;  // one integer; nullptr: 0
  DType dtype = DType::kI64;
  std::int64_t step = 0;  // elements from one position to the next
  std::int64_t most = 0;
  FaultPlace faults;
};

// Copies the elements of `from` (data == nullptr: zeros, with strides of 0) to `to`, a dense tensor
// or a part of one, of the same shape and dtype.
void place(const KernelCall& call, const TensorRef& from, const TensorRef& to,
           const Position& position = {});

// Zeros in all elements of a dense tensor or a part of one.
void clear(const KernelCall& call, const TensorRef& y);

}  // namespace tracestep::cuda

// Integer operands in device code. For an index out of range a kernel records a Fault for the host
// and continues with kNoIndex.
#pragma once

#include <cstdint>

#include "backends/cuda/toolkit/stream.h"
#include "runtime/tensor_ref.h"

namespace tracestep::cuda {

// A dense operand of an integer dtype.
struct Indices {
  const void* data;
  DType dtype;

  explicit Indices(const TensorRef& operand) : data(operand.data), dtype(operand.dtype) {}

  __device__ std::int64_t at(std::int64_t i) const {
    switch (dtype) {
      case DType::kI64: return static_cast<const std::int64_t*>(data)[i];
      case DType::kI32: return static_cast<const std::int32_t*>(data)[i];
      default: return static_cast<const std::uint8_t*>(data)[i];
    }
  }
};

// Records the fault unless there is one. Atomic among the threads of this device, which is enough:
// the host reads it when they are done.
__device__ inline void report(const FaultPlace& place, FaultKind kind, std::int64_t value,
                              std::int64_t bound) {
  Fault* const fault = place.fault;
  const auto none = static_cast<std::int32_t>(FaultKind::kNone);
  if (*static_cast<volatile std::int32_t*>(&fault->kind) != none) return;
  if (atomicCAS(&fault->kind, none, static_cast<std::int32_t>(kind)) != none) return;
  fault->value = value;
  fault->bound = bound;
  fault->op = place.op;
}

inline constexpr std::int64_t kNoIndex = -1;

// Returns the index if it is in [0, bound); otherwise reports a fault and returns kNoIndex.
__device__ inline std::int64_t checked_index(std::int64_t index, std::int64_t bound,
                                             const FaultPlace& faults) {
  if (index >= 0 && index < bound) return index;
  report(faults, FaultKind::kIndex, index, bound);
  return kNoIndex;
}

}  // namespace tracestep::cuda

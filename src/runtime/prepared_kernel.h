// A call of an op made ready beforehand: what has to be chosen, compiled or planned is done, and a
// launch only needs to be told where the operands lie. It refers to no program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/attrs.h"

namespace tracestep {

class Allocator;
struct OpDef;

// An operand or a result, but for its address.
struct OperandSpec {
  DType dtype = DType::kF32;
  Shape shape;
  Strides strides;  // elements
  // Bytes that the address of its first element is always a multiple of: a power of two.
  std::int64_t alignment = 1;
};

// The largest power of two that divides both; `offset_bytes` may be 0.
inline std::int64_t alignment_at(std::int64_t block_alignment, std::int64_t offset_bytes) {
  const std::int64_t both = block_alignment | offset_bytes;
  return both & -both;
}

// A call, but for its addresses.
struct KernelSpec {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<OperandSpec> inputs = {}, outputs = {};
  std::int64_t workspace_bytes = 0;
};

// First elements, in the order of the spec; nullptr: empty, or a result that nobody reads.
struct LaunchOperands {
  std::span<void*const> inputs, outputs;
  void* workspace = nullptr;
};

struct LaunchContext {
  void* stream = nullptr;  // Device::stream()
};

class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // Issues the call. Throws DeviceError or Error{kUsage} (an index out of range).
  virtual void launch(const LaunchOperands& operands, const LaunchContext& context) = 0;
  // Times what there is to choose from, on memory that it takes and gives back, and keeps the
  // fastest. Does nothing where there is no choice, it was made, or the device was not asked to.
  virtual void tune(Allocator& /*memory*/) {}
};

// A prepared call and the operands of its next launch.
struct PreparedLaunch {
  std::unique_ptr<PreparedKernel> kernel;
  std::vector<void*> inputs, outputs;
  void* workspace = nullptr;

  void launch(const LaunchContext& context) const {
    kernel->launch({inputs, outputs, workspace}, context);
  }
};

}  // namespace tracestep

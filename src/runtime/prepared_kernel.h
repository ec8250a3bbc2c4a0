// A call of an op that is ready to launch: choosing, compiling and planning are done, and only the
// addresses of the operands are missing. It does not refer to a program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/attrs.h"

namespace tracestep {

class Allocator;
class Communicator;
struct OpDef;

// An operand or a result without its address.
struct OperandSpec {
  DType dtype = DType::kF32;
  Shape shape;
  Strides strides;  // elements
  // Guaranteed alignment of the first element's address, in bytes; a power of two.
  std::int64_t alignment = 1;
};

// Returns the largest power of two that divides `block_alignment` and `offset_bytes` (may be 0).
inline std::int64_t alignment_at(std::int64_t block_alignment, std::int64_t offset_bytes) {
  const std::int64_t both = block_alignment | offset_bytes;
  return both & -both;
}

// A call that lacks the addresses of its operands.
struct KernelSpec {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<OperandSpec> inputs = {}, outputs = {};
  std::int64_t workspace_bytes = 0;
};

// The addresses of the operands' first elements, in the order of the spec; nullptr: the operand is
// empty, or the result is not read.
struct LaunchOperands {
  std::span<void*const> inputs, outputs;
  void* workspace = nullptr;
};

struct LaunchContext {
  void* stream = nullptr;         // Device::stream() of the device that launches.
  Communicator* group = nullptr;  // Device::group() of that device.
};

class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // Issues the call. Throws DeviceError or Error{kUsage} (an index out of range).
  virtual void launch(const LaunchOperands& operands, const LaunchContext& context) = 0;
  // Times the candidate kernels on memory that it allocates and frees, and keeps the fastest. Does
  // nothing if there is one candidate, the choice was made before, or tuning is off on the device.
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

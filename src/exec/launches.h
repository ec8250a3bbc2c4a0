// The launches of a program on a device: prepared kernels, and the buffers of their operands. Every
// executor issues these, and decides when and where the buffers exist.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/buffer_plan.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

// The place of the first element of an operand or a result.
struct Slot {
  int buffer = -1;  // The index in the buffer plan; -1: a result that is not read.
  std::int64_t offset_bytes = 0;
};

struct Launch {
  NodeId node = kNoNode;
  std::vector<Slot> inputs, outputs;
  std::int64_t workspace_bytes = 0;
  PreparedLaunch call;

  // Sets the addresses of operands and results from `buffers`, which has them by index in the
  // buffer plan.
  void place(std::span<void* const> buffers);
};

// Prepares the launches, in order of nodes, without views. With tuning, kernels are timed on
// scratch memory that is freed again and is no larger than what the call itself needs. Throws
// OutOfMemory, and Error{kUsage} when an op or a dtype has no kernel on the device.
std::vector<Launch> prepare_launches(const Program& program, const BufferPlan& buffer_plan,
                                     Device& device);

}  // namespace tracestep

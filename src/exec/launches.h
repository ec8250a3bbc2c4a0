// The launches of a program on a device: which kernel, prepared, and in which buffers its operands
// lie. Every executor issues these; when buffers exist, and where, is left to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/storage.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

// Where the first element of an operand or a result is.
struct Slot {
  int buffer = -1;  // of the storage plan; -1: a result that nobody reads
  std::int64_t offset_bytes = 0;
};

struct Launch {
  NodeId node = kNoNode;
  std::vector<Slot> inputs, outputs;
  std::int64_t workspace_bytes = 0;
  PreparedLaunch call;

  // Sets the addresses of operands and results; `buffers` by index of the storage plan.
  void place(std::span<void* const> buffers);
};

// In order of nodes, views left out. Kernels that have a choice make it here, on scratch memory
// that is given back: no more than the call itself will need.
// Throws Error{kUsage} when an op or a dtype has no kernel on the device, OutOfMemory.
std::vector<Launch> prepare_launches(const Program& program, const Storage& storage,
                                     Device& device);

}  // namespace tracestep

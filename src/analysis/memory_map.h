// Memory map: every byte of a step, known before it runs. Peaks are those of the device's memory.
// The eager executor allocates in the order that is assumed here, so the predicted peak is exact;
// tests compare it with the allocator's count.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/buffer_plan.h"
#include "planning/device_traits.h"

namespace tracestep {

struct MappedBuffer {
  std::int64_t bytes = 0;  // Its bytes in the device's memory.
  // The bytes of a leaf that lies in the host's memory; its `bytes` are 0.
  std::int64_t host_bytes = 0;
  Category category = Category::kTemporary;
  Phase phase = Phase::kForward;  // The phase of the node that allocates it.
  NodeId first = kNoNode, last = kNoNode;
  std::string path;    // model path, or the leaf's name
  std::string op;      // The op that makes it; "input", "parameter" or "state" for a leaf.
  std::string reason;  // Why it stays alive as long as it does.
  bool at_peak = false;
};

struct MemoryMap {
  std::vector<MappedBuffer> buffers;  // Buffers and workspaces in the order of allocation.
  std::int64_t peak_bytes = 0;
  NodeId peak_node = kNoNode;                              // the node running at the peak
  std::array<std::int64_t, kCategoryCount> by_category{};  // bytes alive at the peak
  // The most bytes while each phase runs.
  std::array<std::int64_t, std::size(kAll<Phase>)> by_phase{};
  std::int64_t leaf_bytes = 0;  // The bytes before and after the step.
};

MemoryMap map_memory(const Program& program, const DeviceTraits& traits);

// Returns the bytes of leaves in the host's memory, which exist before, during and after the step.
std::int64_t host_bytes(const Program& program);

// Returns the bytes alive at the fullest moment of each node; 0 for nodes that do not run.
std::vector<std::int64_t> live_bytes_by_node(const Program& program, const BufferPlan& buffer_plan,
                                             const DeviceTraits& traits);
// Returns the peak of map_memory() alone, which is faster, for searches.
std::int64_t predicted_peak_bytes(const Program& program, const BufferPlan& buffer_plan,
                                  const DeviceTraits& traits);

}  // namespace tracestep

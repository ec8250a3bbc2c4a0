// Memory map: every byte of a step, known before it runs. Peaks are of the device's memory. The
// eager executor allocates in the order assumed here, so the predicted peak is exact; tests compare
// it with the allocator's count.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/buffer_plan.h"
#include "planning/device_traits.h"

namespace tracestep {

struct MappedBuffer {
  std::int64_t bytes = 0;       // in the device's memory
  std::int64_t host_bytes = 0;  // in the host's: of a leaf that lies there, which has no `bytes`
  Category category = Category::kTemporary;
  Phase phase = Phase::kForward;  // of the node that allocates it
  NodeId first = kNoNode, last = kNoNode;
  std::string path;    // model path, or the leaf's name
  std::string op;      // producing op; "input", "parameter" or "state" for a leaf
  std::string reason;  // why it is alive as long as it is
  bool at_peak = false;
};

struct MemoryMap {
  std::vector<MappedBuffer> buffers;  // workspaces included, in order of allocation
  std::int64_t peak_bytes = 0;
  NodeId peak_node = kNoNode;                                  // the node running at the peak
  std::array<std::int64_t, kCategoryCount> by_category{};      // bytes alive at the peak
  std::array<std::int64_t, std::size(kAllPhases)> by_phase{};  // highest total while a phase runs
  std::int64_t leaf_bytes = 0;                                 // alive before and after the step
};

MemoryMap map_memory(const Program& program, const DeviceTraits& traits);

// Bytes of the leaves that lie in the host's memory, before, in and after the step.
std::int64_t host_bytes(const Program& program);

// The bytes alive at the fullest moment of each node; 0 for those that do not run.
std::vector<std::int64_t> live_bytes_by_node(const Program& program, const BufferPlan& buffer_plan,
                                             const DeviceTraits& traits);
// The peak alone, without names: what a sweep needs.
std::int64_t predicted_peak_bytes(const Program& program, const BufferPlan& buffer_plan,
                                  const DeviceTraits& traits);

}  // namespace tracestep

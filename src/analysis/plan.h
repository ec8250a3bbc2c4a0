// Plan: where everything of a step lies in memory, before it runs. Buffers and workspaces share one
// arena at fixed offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/arena.h"
#include "analysis/buffer_plan.h"
#include "planning/device_traits.h"

namespace tracestep {

struct Plan {
  // The place in the arena of a buffer that is no leaf, or of a node's workspace.
  struct Place {
    int buffer = -1;        // An index into `buffer_plan`; -1: it is a workspace.
    NodeId node = kNoNode;  // The first node that needs it.
    std::int64_t bytes = 0, offset = 0;
  };
  BufferPlan buffer_plan;
  // The places in the order in which they are first needed; empty buffers have none.
  std::vector<Place> places;
  std::vector<int> place_of_buffer;  // The place of each buffer; -1: it is a leaf, or empty.
  std::vector<int> workspace_of;     // The place of each node's workspace; -1: it has none.
  std::int64_t arena_bytes = 0;
  std::int64_t least_arena_bytes = 0;  // The largest sum of bytes that are needed at the same time.
  // The bytes of leaves, which are outside of the arena before, during and after the step.
  std::int64_t leaf_bytes = 0;

  // Returns the bytes that a step holds at its peak when it runs in an arena.
  std::int64_t peak_bytes() const { return leaf_bytes + arena_bytes; }
  // True if both are needed at the same time, so that they must not share bytes.
  bool overlap_in_time(const Place& a, const Place& b) const;
  // True if the buffer's contents are valid after `node` has run; node count - 1: after the step.
  bool is_alive_after(int buffer, NodeId node) const;

 private:
  friend Plan plan_step(const Program& program, const DeviceTraits& traits);
  Lifetime lifetime(const Place& place) const;
};

// Plans a step. O(nodes²) in the worst case, for the arena: about a second for the largest
// programs.
Plan plan_step(const Program& program, const DeviceTraits& traits);

}  // namespace tracestep

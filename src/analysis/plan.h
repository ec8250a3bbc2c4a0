// Plan: where everything of a step lives, before it runs. Buffers and workspaces share one arena at
// fixed offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/arena.h"
#include "analysis/buffer_plan.h"
#include "planning/device_traits.h"

namespace tracestep {

struct Plan {
  // A buffer that is no leaf, or the workspace of a node, in the arena.
  struct Place {
    int buffer = -1;        // of `buffer_plan`; -1: a workspace
    NodeId node = kNoNode;  // the first node that needs it
    std::int64_t bytes = 0, offset = 0;
  };
  BufferPlan buffer_plan;
  std::vector<Place> places;         // in order of first need; empty buffers have no place
  std::vector<int> place_of_buffer;  // by buffer; -1: a leaf, or empty
  std::vector<int> workspace_of;     // by node: its place; -1: none
  std::int64_t arena_bytes = 0;
  std::int64_t least_arena_bytes = 0;  // the largest sum of bytes that are needed at once
  std::int64_t leaf_bytes = 0;         // outside the arena, before and after the step

  // Bytes that a step holds at its peak when it runs in an arena.
  std::int64_t peak_bytes() const { return leaf_bytes + arena_bytes; }
  // True if both are needed at the same time, so that they must not share bytes.
  bool overlap_in_time(const Place& a, const Place& b) const;
  // True if the buffer's contents are valid after `node` has run; node count - 1: after the step.
  bool is_alive_after(int buffer, NodeId node) const;

 private:
  friend Plan plan_step(const Program& program, const DeviceTraits& traits);
  Lifetime lifetime(const Place& place) const;
};

// O(nodes²) in the worst case, for the arena: about a second for the largest programs.
Plan plan_step(const Program& program, const DeviceTraits& traits);

}  // namespace tracestep

#include "analysis/plan.h"

#include "analysis/cost.h"
#include "base/indexed.h"

namespace tracestep {
namespace {

// Adds the places of buffers and workspaces to the plan in order of first need, without offsets.
void list_places(const Program& program, const DeviceTraits& traits, Plan& plan) {
  const BufferPlan& buffer_plan = plan.buffer_plan;
  plan.place_of_buffer.assign(buffer_plan.buffers.size(), -1);
  plan.workspace_of.assign(program.nodes.size(), -1);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!buffer_plan.runs[i]) continue;
    const auto node = static_cast<NodeId>(i);
    for (int b : buffer_plan.allocated_at[i]) {
      const std::int64_t bytes = buffer_plan.buffers[at(b)].bytes;
      if (bytes == 0) continue;
      plan.place_of_buffer[at(b)] = static_cast<int>(plan.places.size());
      plan.places.push_back({b, node, bytes});
    }
    const std::int64_t workspace = workspace_bytes(program, program.nodes[i], traits);
    if (workspace == 0) continue;
    plan.workspace_of[i] = static_cast<int>(plan.places.size());
    plan.places.push_back({-1, node, workspace});
  }
}

}  // namespace

// Returns when the place is in use, by nodes' numbers, which are the time on lane 0; a buffer
// that another lane uses lives until lane 0 has waited for it.
Lifetime Plan::lifetime(const Place& place) const {
  return {place.node, place.buffer < 0 ? buffer_plan.turns[at(place.node)].until
                                       : buffer_plan.buffers[at(place.buffer)].last};
}

bool Plan::overlap_in_time(const Place& a, const Place& b) const {
  return lifetime(a).overlaps(lifetime(b));
}

bool Plan::is_alive_after(int buffer, NodeId node) const {
  const Buffer& b = buffer_plan.buffers[at(buffer)];
  return b.first <= node && b.last > node;
}

Plan plan_step(const Program& program, const DeviceTraits& traits) {
  Plan plan;
  plan.buffer_plan = plan_buffers(program);
  for (const Buffer& b : plan.buffer_plan.buffers)
    plan.leaf_bytes += b.first == kNoNode ? b.bytes : 0;
  list_places(program, traits, plan);
  std::vector<ArenaBlock> blocks;
  for (const Plan::Place& place : plan.places) {
    blocks.push_back({place.bytes, plan.lifetime(place)});
  }
  plan.least_arena_bytes = least_arena_bytes(blocks);
  plan.arena_bytes = pack_arena(blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) plan.places[i].offset = blocks[i].offset;
  return plan;
}

}  // namespace tracestep

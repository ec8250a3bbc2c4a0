// Lanes: nodes of one lane run one after the other, nodes of different lanes at the same time.
// Collectives, updates and moves between memories say on which lane they are, and which of them are
// issued together. Which node has to wait for which other one follows from the buffers they use.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "ir/program.h"

namespace tracestep {

struct BufferPlan;

// The number of lanes. Lane 0 is the step's own order; lanes 1 and 2 run at the same time as it.
inline constexpr int kLaneCount = 3;

// When a node runs: on which lane, after which nodes, and until when its buffers are in use.
struct Turn {
  int lane = 0;
  // For each lane, its last node that must have ended before this node starts; kNoNode: none, or an
  // earlier node of this lane has waited for it. Nodes of lanes 1 and 2 wait for lane 0 alone.
  std::array<NodeId, kLaneCount> waits{kNoNode, kNoNode, kNoNode};
  // From the start of node `until` on, lane 0 may do anything with the buffers that this node uses.
  // It is the node itself on lane 0; else the node of lane 0 that waits for it, or the step's last.
  NodeId until = kNoNode;
  bool opens_batch = false, closes_batch = false;  // the first and the last of a batch

  // Returns the last of the nodes, of any lane, that this one waits for.
  NodeId last_wait() const { return std::ranges::max(waits); }
};

// True if the op can run on another lane than 0: it has the attribute `lane` (in batches, `batch`).
bool has_lane(const OpDef& op);

// Returns the turns of all nodes; views have none. A node of lane 1 or 2 waits for all of lane 0
// before it; so its place in the program is the earliest time at which it runs. A node of lane 0
// waits for nodes of other lanes whose results it reads, and for those that use what it overwrites.
// The last reader of a buffer waits for a copy on another lane that reads it too, and lane 0 for a
// batch (nodes of a lane issued together) that is the last to read a buffer, once two more batches
// of its lane have been issued: so buffers can be freed. Lanes 1 and 2 do not wait for each other:
// what one makes reaches the other after a node of lane 0 that has waited for it.
std::vector<Turn> turns_of(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep

// Lanes: nodes of one lane run one after the other, nodes of different lanes at the same time.
// Collectives and updates say which lane they are on, and collectives which of them are issued
// together; what has to wait for what follows from the buffers.
#pragma once

#include <vector>

#include "ir/program.h"

namespace tracestep {

struct BufferPlan;

// When a node runs.
struct Turn {
  int lane = 0;
  // The last node of the other lane that must have ended before this one starts; kNoNode: none, or
  // an earlier node of this lane has waited for it.
  NodeId wait = kNoNode;
  // From this node's start on, lane 0 may do anything with the buffers that the node uses: the node
  // itself on lane 0; on lane 1 the node of lane 0 that waits for it, or the last one of the step.
  NodeId until = kNoNode;
  bool opens_batch = false, closes_batch = false;  // the first and the last of a batch
};

// True if the op can run on another lane than 0: it has the attribute `lane` (in batches, `batch`).
bool has_lane(const OpDef& op);

// Turns by node; views have none. A node of lane 1 waits for everything on lane 0 that stands
// before it; so its place in the program is the earliest time at which it runs. A node of lane 0
// waits for nodes of lane 1 whose results it reads, and for those that use what it overwrites. The
// last reader of a buffer waits for a copy of it on lane 1, so that the buffer can be freed.
// Where a batch is the last to read a buffer, lane 0 waits for it when two more batches have been
// issued, so that the buffer can be freed.
std::vector<Turn> turns_of(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep

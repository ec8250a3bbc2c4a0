// Lanes: nodes of one lane run one after the other, and nodes of different lanes may run at the
// same time. Collectives and updates have an attribute for their lane, and collectives one for the
// batch in which they are issued together. Which nodes must wait for which follows from the
// buffers.
#pragma once

#include <vector>

#include "ir/program.h"

namespace tracestep {

struct BufferPlan;

// When a node may run.
struct Turn {
  int lane = 0;
  // The last node of the other lane that must end before this one starts; kNoNode: there is none,
  // or an earlier node of this lane has waited for it.
  NodeId wait = kNoNode;
  // The node from whose start on lane 0 may reuse the buffers that this node uses: for a node on
  // lane 0, itself; for a node on lane 1, the node of lane 0 that waits for it, or the last node of
  // the step.
  NodeId until = kNoNode;
  // True for the first (the last) collective of a batch.
  bool opens_batch = false, closes_batch = false;
};

// True if the op can run on another lane than 0: it has the attribute `lane` (in batches, `batch`).
bool has_lane(const OpDef& op);

// The turn of each node; views have none. A node of lane 1 waits for everything that stands before
// it on lane 0, so it cannot run earlier than its place in the program. A node of lane 0 waits for
// the nodes of lane 1 whose results it reads or whose operands it overwrites. The last reader of a
// buffer also waits for a copy of it on lane 1, so that the buffer can be freed. If a batch is the
// last to read a buffer, lane 0 waits for it after two more batches have been issued, for the same
// reason.
std::vector<Turn> turns_of(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep

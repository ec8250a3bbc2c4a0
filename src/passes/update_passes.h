// Passes that decide when and where weights are updated, and in how many launches.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/op_def.h"
#include "ir/program.h"
#include "run/parallel.h"

namespace tracestep {

// Moves every update into backward, directly behind its gradient or, if later, the last reader of
// what it overwrites, so that the gradients are never all alive at once. The nodes are the same,
// and so are their results. Updates that wait for all gradients, as with clipping by their norm,
// stay at the end.
Program update_early(const Program& program);

// Runs updates at the same time as backward, on their own lane, while the products of other layers
// run. An update is moved (update_early()) and put on lane 1 (analysis/lanes.h) if all its operands
// are ready before the last matrix product of the step. With `joins`, the updates of each layer,
// and those outside all layers, become one call each, which includes the casts to narrow copies.
// Lane 0 keeps updates that no product follows, updates of vectors, which are too small, and those
// whose results another node reads. If every update waits for all gradients, as with clipping,
// nothing changes. Values stay bit-identical. `has_kernel`: whether the device can run the op of
// the joined call.
Program update_beside(const Program& program, bool joins,
                      const std::function<bool(const OpDef&)>& has_kernel);

// Merges the optimizer updates of all tensors into one launch, or into few of them.
//
// Calls that differ only in their tensors become one call (OpDef::join), and the casts that update
// their shadows (passes/shadow.cpp) are merged in. It stands where the last of the calls did, or
// behind the last reader of a shadow. Values stay bit-identical. `has_kernel`: whether the device
// can run the op of the merged call.
//
// Among several ranks (`choice`) they become several calls, in the order in which their gradients
// are there, so that `overlap` has updates to run beside collectives:
// - Where ranks update parts of whole weights, each call updates a batch of choice.bucket_bytes;
//   the ranks' own parts are taken in front of it, and updates are gathered behind it.
// - Otherwise the gradients that can be in the last batch have a call of their own.
Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
             const Parallel& choice = {});
// As join(), on one rank and within each part. `part_of`: the part that a call belongs to; nullopt:
// it stays as it is.
Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of);

// Places in the host's memory what only updates read: the optimizer's moments, and weights of which
// the rest of the step reads narrow copies. Scalar states stay on the device. Nodes and results do
// not change: the update kernels read and write the host's memory directly, in both directions at
// once, so nothing is copied and no buffer of the device holds a part of it.
Program offload(const Program& program);

}  // namespace tracestep

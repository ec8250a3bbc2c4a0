// Passes that decide when and where weights are updated, and in how many launches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ir/op_def.h"
#include "ir/program.h"
#include "run/parallel.h"

namespace tracestep {

// Moves every update into backward, directly after its gradient or, if later, the last reader of
// what it overwrites, so that the gradients are never all alive at once. The nodes are the same,
// and so are their results. Updates that wait for all gradients, as with clipping by their norm,
// stay at the end.
Program update_early(const Program& program);

// Lets updates run at the same time as backward's products of other layers. Places updates as
// update_early() does, and those whose operands all exist before the last matrix product of the
// step on lane 1 (analysis/lanes.h). With `joins` those of a layer, and those outside all layers,
// become one call each, which takes in the casts to narrow copies. On lane 0 stay updates that no
// product follows, those of vectors, which are too small, and those whose results another node
// reads. Where each update waits for all gradients, as with clipping by their norm, nothing
// changes. Values stay bit-identical. `has_kernel`: whether the device can run the op of the joined
// call.
// `in_streams`: in several calls a layer, as join_in_streams() has them.
Program update_beside(const Program& program, bool joins,
                      const std::function<bool(const OpDef&)>& has_kernel, bool in_streams = false);

// Merges the optimizer updates of all tensors into one launch, or into few of them.
//
// Calls that differ only in their tensors become one call (OpDef::join), and the casts that update
// their shadows (passes/shadow.cpp) are merged in. It stands where the last of the calls did, or
// after the last reader of a shadow. Values stay bit-identical. `has_kernel`: whether the device
// can run the op of the merged call.
//
// Among several ranks (`choice`) they become several calls, in the order in which their gradients
// are there, so that `overlap` has updates to run beside collectives:
// - Where ranks update parts of whole weights, each call updates a batch of choice.bucket_bytes;
//   the ranks' own parts are taken before it, and updates are gathered after it.
// - Otherwise the gradients that can be in the last batch have a call of their own.
Program join(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
             const Parallel& choice = {});
// Does what join() does, on one rank and within each part. `part_of`: the part that a call
// belongs to; nullopt: it stays as it is.
Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of);

// join_in_streams() joins as join() does on one rank, but in parts of few tensors for
// stream_states(): those of a layer, with at most a quarter of kMostStreamedBytes of states and
// weights (or a single tensor), and vectors apart. parts_for_streams() returns these.
std::map<const Node*, std::string> parts_for_streams(const Program& program);  // by call: its part
Program join_in_streams(const Program& program,
                        const std::function<bool(const OpDef&)>& has_kernel);

// Places in the host's memory what only updates read: the optimizer's moments, and weights whose
// narrow copies the rest of the step reads. Scalar states stay where they are. The nodes are the
// same, and so are their results: the kernels of the updates read and write the host's memory
// directly, both ways at once, so that nothing is copied and no buffer of the device holds a part
// of it.
Program offload(const Program& program);

// stream_states() lets updates use buffers of the device in place of what offload() has put into
// the host's memory: copies bring it in on lane 1 and take it back on lane 2, while updates, and
// the nodes of backward around them, run on lane 0. Copies for an update come after the update two
// before it, so that two updates' operands are there or on their way, and two more on their way
// back. Leaves with less than kLeastStreamedBytes, and calls with more than kMostStreamedBytes, go
// over the bus as offload() leaves them. Values stay bit-identical.
inline constexpr std::int64_t kLeastStreamedBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostStreamedBytes = std::int64_t{1} << 30;
Program stream_states(const Program& program, std::int64_t least = kLeastStreamedBytes,
                      std::int64_t most = kMostStreamedBytes);

}  // namespace tracestep

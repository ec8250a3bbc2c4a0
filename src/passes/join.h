// Merges the optimizer updates of all tensors into one launch, or into few of them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/op_def.h"
#include "run/parallel.h"

namespace tracestep {

// Calls that differ only in their tensors become one call (OpDef::join), and the casts that update
// their shadows (passes/shadow.h) are merged in. It stands where the last of the calls did, or
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
// On one rank, the same for each part by itself. `part_of`: the part that a call belongs to;
// nullopt: it stays as it is.
Program join_parts(const Program& program, const std::function<bool(const OpDef&)>& has_kernel,
                   const std::function<std::optional<std::string>(const Node&)>& part_of);

}  // namespace tracestep

// Needs and abilities of a device's kernels, as pure functions of its traits. Always built, so that
// a machine without a GPU can plan for one exactly.
#pragma once

#include <cstdint>

#include "ir/op_def.h"
#include "planning/device_traits.h"

namespace tracestep {

// True if a device of this kind has kernels for values of this dtype.
bool computes_in(DeviceKind kind, DType dtype);

// True if this kind of device is assumed to have a kernel for the op, without asking a device. This
// holds for ops that are not always decomposed, and for fused nodes on kinds that compile kernels
// at run time.
bool runs_whole(DeviceKind kind, const OpDef& op);

// Returns the bytes of workspace that a call needs besides operands and results; `call.outputs`
// must be set. Kernels get exactly this and allocate nothing else, so that peaks can be predicted.
std::int64_t workspace_bytes(const OpCall& call, const DeviceTraits& traits);

}  // namespace tracestep

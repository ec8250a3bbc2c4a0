// What the kernels of a device need and can do, as pure functions of its traits: always built, so
// that a machine without a GPU plans for one to the byte.
#pragma once

#include <cstdint>

#include "ir/op_def.h"
#include "planning/device_traits.h"

namespace tracestep {

// Whether a device of this kind has kernels for values of this dtype.
bool computes_in(DeviceKind kind, DType dtype);

// Whether a device of this kind, which is not there to be asked, is taken to have a kernel for the
// op: for all that is not always taken apart, and for regions where kernels are made at run time.
bool runs_whole(DeviceKind kind, const OpDef& op);

// Scratch bytes of a call besides operands and results. The kernels get that many and ask for no
// others, so that peaks can be predicted; `call.outputs` must be filled in.
std::int64_t workspace_bytes(const OpCall& call, const DeviceTraits& traits);

}  // namespace tracestep

// Models the time of nodes that a device may run as fused kernels; roofline.h models single nodes.
#pragma once

#include <vector>

#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// Returns the modelled_us() of each node, in microseconds. With `fuses`, elementwise ops, rotations
// and row ops count as one kernel with their neighbours of the same phase and epoch: values between
// them are neither written nor read, and only the first node has the time of a launch.
std::vector<double> modelled_us_by_node(const Program& program, DeviceKind kind, bool fuses);
// Returns the sum of modelled_us_by_node() over the nodes of the phase, in microseconds.
double modelled_us(const Program& program, Phase phase, DeviceKind kind, bool fuses);

}  // namespace tracestep

// Modelled time of the nodes of a program that a device may run as fused kernels; for single nodes
// see roofline.h.
#pragma once

#include <vector>

#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// modelled_us() by node, in microseconds. With `fuses`, elementwise ops, rotations and rows are
// taken as parts of one kernel with their neighbours of the same phase and epoch: what passes
// between them is neither written nor read, and only the first of them is launched.
std::vector<double> modelled_us_by_node(const Program& program, DeviceKind kind, bool fuses);
// The sum over all nodes of the phase.
double modelled_us(const Program& program, Phase phase, DeviceKind kind, bool fuses);

}  // namespace tracestep

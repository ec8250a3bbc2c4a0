// Modelled time of a node: a roofline with rounded rates of a typical device. It only ranks
// choices. As these must be the same on every machine, it reads no measurement.
#pragma once

#include "analysis/roofline.h"
#include "planning/device_traits.h"

namespace tracestep {

// Microseconds: a launch and the roofline's time; 0 for views. The device is a server CPU's socket,
// or a GPU with 80 GB.
double modelled_us(const Program& program, const Node& node, DeviceKind kind);
// The sum over all nodes of the phase.
double modelled_us(const Program& program, Phase phase, DeviceKind kind);

}  // namespace tracestep

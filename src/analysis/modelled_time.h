// Modelled time of a node: a roofline with rounded rates of a typical device. It only ranks
// choices. As these must be the same on every machine, it reads no measurement.
#pragma once

#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

// A kernel takes `launch_us` and the longer of computing and moving its bytes. One operation per
// microsecond is 1 MFLOP/s.
struct NominalRates {
  double product_flops_per_us = 0;         // of matrix products in float32
  double narrow_product_flops_per_us = 0;  // the same in bfloat16 or float16
  double bytes_per_us = 0;
  double launch_us = 0;
};
// A server CPU's socket, or a GPU with 80 GB.
NominalRates nominal_rates(DeviceKind kind);

// Microseconds; 0 for views.
double modelled_us(const Program& program, const Node& node, DeviceKind kind);
// Of all nodes of the phase.
double modelled_us(const Program& program, Phase phase, DeviceKind kind);

}  // namespace tracestep

// The roofline model (Williams, Waterman and Patterson, "Roofline", 2009): the shortest time in
// which a device can do a piece of work. Its rates are published peaks, round figures
// (modelled_time.cpp) or measured ceilings (lab/measure/ceilings.h).
#pragma once

#include <algorithm>
#include <string>

#include "analysis/cost.h"
#include "base/precision.h"
#include "planning/device_traits.h"

namespace tracestep {

struct DevicePeaks {
  std::string name;                         // "H200"
  double fp32_tflops = 0, bf16_tflops = 0;  // of dense products with float32 sums, by operands
  double bandwidth_gb_s = 0;
  double host_gb_s = 0;  // of the link to the host's memory, each way, nominal
  // 0: not known, or it has no such products.
  double tf32_tflops = 0, fp16_tflops = 0, fp8_tflops = 0;
  double watts = 0;                  // the most that it is allowed; 0: not stated
  bool multiplies_by_parts = false;  // has kernels of fp32-split (docs/precision.md)

  // The peak of products in a precision, by what their operands are rounded to; 0: not known.
  double product_tflops(const Precision& precision) const;
};

// Computing and moving overlap: the work takes the longer of the two at the least.
struct RoofTime {
  double computing_us = 0, moving_us = 0;

  double us() const { return std::max(computing_us, moving_us); }
  double ms() const { return us() * 1e-3; }
  bool is_by_bytes() const { return moving_us >= computing_us; }
};

RoofTime roof_time(const Cost& cost, double tflops, double bandwidth_gb_s);
// Products run at the rate of their operands' dtype (those of float32 at TF32's with `tf32`, and
// those by parts at a third of fp16's; where that rate is 0, at float32's), all other arithmetic at
// fp32_tflops.
RoofTime roof_time(const Program& program, const Node& node, const DevicePeaks& peaks,
                   bool tf32 = false);

// Modelled time of a node: a roofline with rounded rates of a typical device. It only ranks
// choices. As these must be the same on every machine, it reads no measurement. Microseconds: a
// launch and the roofline's time; 0 for views. The device is a server CPU's socket, or a GPU with
// 80 GB.
double modelled_us(const Program& program, const Node& node, DeviceKind kind);
// The sum over all nodes of the phase.
double modelled_us(const Program& program, Phase phase, DeviceKind kind);

}  // namespace tracestep

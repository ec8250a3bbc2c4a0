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
  std::string name;  // "H200"
  // Peaks of dense products with float32 sums, by the dtype of the operands.
  double fp32_tflops = 0, bf16_tflops = 0;
  double bandwidth_gb_s = 0;
  double host_gb_s = 0;  // The nominal rate of the link to the host's memory, in each direction.
  // Peaks of further products; 0: not known, or the device has no such products.
  double tf32_tflops = 0, fp16_tflops = 0, fp8_tflops = 0;
  double watts = 0;                  // The power limit; 0: not stated.
  bool multiplies_by_parts = false;  // has kernels of fp32-split (docs/precision.md)

  // The peak of products in a precision, by the type to which their operands are rounded; 0: not
  // known.
  double product_tflops(const Precision& precision) const;
};

// The times of computing and of moving bytes. The two overlap, so the work takes at least the
// longer one.
struct RoofTime {
  double computing_us = 0, moving_us = 0;

  double us() const { return std::max(computing_us, moving_us); }
  double ms() const { return us() * 1e-3; }
  bool is_by_bytes() const { return moving_us >= computing_us; }
};

RoofTime roof_time(const Cost& cost, double tflops, double bandwidth_gb_s);
// Returns the roofline time of a node. Products run at the rate of their operands' dtype:
// float32 at TF32's with `tf32`, products by parts at a third of fp16's, or at float32's if
// fp16's is not known. All other arithmetic runs at fp32_tflops.
RoofTime roof_time(const Program& program, const Node& node, const DevicePeaks& peaks,
                   bool tf32 = false);

// Returns the modelled time of a node in microseconds: a launch and the roofline time at rounded
// rates of a typical device, a server CPU's socket or a GPU with 80 GB; 0 for views. It only
// serves to rank choices, which must be the same on every machine, so it reads no measurement.
double modelled_us(const Program& program, const Node& node, DeviceKind kind);
// Returns the sum of the modelled times of all nodes of the phase, in microseconds.
double modelled_us(const Program& program, Phase phase, DeviceKind kind);

}  // namespace tracestep

// Measures the highest speeds that a run's device reaches: for rooflines, and for rows to be
// compared with.
#pragma once

#include <optional>

#include "analysis/roofline.h"
#include "run/run_spec.h"
#include "runtime/ceilings.h"

namespace tracestep {

// The time that a device at its ceilings would take for an op of this cost. `dtype`: of the
// operands. 0 when the ceilings are not known.
RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings);

// As above, with cost and class of a node, and the dtype of its first operand.
RoofTime roof_time(const Program& program, const Node& node, const Ceilings& ceilings);

// Measures in the run's precision, in about two seconds. Empty for devices that are not measured
// (reference, null). Errors as make_device().
Ceilings device_ceilings(const RunSpec& run);

// The highest arithmetic speed of all ranks together, with which timed rows are compared. Measured
// once for each device and precision of this process, when first asked for.

// TFLOP/s of matrix products or multiply-adds in the run's precision, on its device; 0: the device
// has no such figure. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
double roof_tflops(const RunSpec& run);
// As roof_tflops(). If `reached` (TFLOP/s) is higher, the ceiling is measured again a few times,
// because other work on the machine may have slowed the first measurement.
double roof_tflops_for(const RunSpec& run, double reached);
// The number of cores that other processes kept busy while the ceiling was measured; nullopt if it
// is not known or the ceiling is a GPU's.
std::optional<double> roof_others_cores(const RunSpec& run);

}  // namespace tracestep

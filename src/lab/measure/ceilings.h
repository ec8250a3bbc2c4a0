// Measures the highest speeds that a run's device reaches: for rooflines, and for rows to be
// compared with.
#pragma once

#include <optional>

#include "analysis/roofline.h"
#include "run/run_spec.h"
#include "runtime/ceilings.h"

namespace tracestep {

// Returns the time that a device at its ceilings would take for an op of this cost, whose operands
// have this dtype; 0 if the ceilings are not known.
RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings);

// Returns the roof_time() of a node, by its cost, its class and the dtype of its first operand.
RoofTime roof_time(const Program& program, const Node& node, const Ceilings& ceilings);

// Measures the ceilings of the run's device in the run's precision, in about two seconds. Empty for
// devices that are not measured (reference, null). Throws the errors of make_device().
Ceilings device_ceilings(const RunSpec& run);

// The highest arithmetic speed of all ranks together, with which timed rows are compared. Measured
// once for each device and precision of this process, when first asked for.

// Returns the highest TFLOP/s of matrix products or multiply-adds in the run's precision on its
// device; 0: there is none. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
double roof_tflops(const RunSpec& run);
// Returns the result of roof_tflops(run). If `reached` (TFLOP/s) is higher, the ceiling is measured
// again a few times, because other work on the machine may have slowed the first measurement.
double roof_tflops_for(const RunSpec& run, double reached);
// Returns the number of cores that other processes kept busy while roof_tflops() measured its
// ceiling; nullopt if it is not known or the ceiling is a GPU's.
std::optional<double> roof_others_cores(const RunSpec& run);

}  // namespace tracestep

// The highest speeds that a device reaches: for rooflines, for rows of `bench`, and as tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/measure/ceilings.h"
#include "lab/report/table.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// For one precision, measured in about two seconds. Empty for devices that are not measured
// (reference, null).
Ceilings device_ceilings(const RunSpec& run);

// Every ceiling that can be measured, in about ten seconds on a CPU, two on a GPU. Errors as
// make_device().
std::vector<Table> ceiling_tables(const RunSpec& run);

// The highest arithmetic speed of all ranks together, with which timed rows are compared. Measured
// once for each device and precision of this process, when first asked for.

// TFLOP/s of matrix products or multiply-adds in the run's precision, on its device; 0: the device
// has no such figure. Takes about 0.1 s on a CPU, two seconds and up to 2 GiB on a GPU.
double roof_tflops(const RunSpec& run);
// The same, but measured some times more while `reached` (TFLOP/s) is higher, since other work on
// the machine may have slowed the first measurement.
double roof_tflops_for(const RunSpec& run, double reached);
// How many cores others kept busy while it was measured; none: not known, or a GPU's.
std::optional<double> roof_others_cores(const RunSpec& run);

}  // namespace tracestep::cli

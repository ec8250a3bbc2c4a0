// The ceilings of a device for one precision, measured in about two seconds: what `profile` draws
// its rooflines with. `doctor --ceilings` measures the same and more.
#pragma once

#include "lab/measure/ceilings.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// Unknown for devices that are not measured (reference).
Ceilings device_ceilings(const RunSpec& run);

}  // namespace tracestep::cli

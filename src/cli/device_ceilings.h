// The ceilings of a device for one precision, measured in about two seconds: `profile` draws its
// rooflines with them. `doctor --ceilings` measures these and more.
#pragma once

#include "lab/measure/ceilings.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// Empty for devices that are not measured (reference).
Ceilings device_ceilings(const RunSpec& run);

}  // namespace tracestep::cli

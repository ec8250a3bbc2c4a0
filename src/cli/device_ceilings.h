// The ceilings of a device for one precision, measured in about two seconds: what `profile` draws
// its rooflines with. `doctor --ceilings` measures the same and more.
#pragma once

#include <string_view>

#include "cli/options.h"
#include "lab/measure/ceilings.h"

namespace tracestep::cli {

// Unknown for devices that are not measured (reference).
Ceilings device_ceilings(const RunOptions& run, std::string_view precision);

}  // namespace tracestep::cli

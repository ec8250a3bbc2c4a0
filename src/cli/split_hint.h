// One line on what float32 by parts would gain.
#pragma once

#include <string>

#include "cli/time_source.h"

namespace tracestep::cli {

// For a step whose times are predicted from `source`; empty where that is no device that has
// `fp32-split`, where it is not known what it would gain, or where that is less than a twentieth.
std::string split_hint(const RunSpec& run, const TimeSource& source);
// For a step on the device that is here: from its calibration, or from the published peaks of its
// name where it has none.
std::string split_hint(const RunSpec& run, const Json& environment);

}  // namespace tracestep::cli

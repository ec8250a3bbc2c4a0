// A line that says how much faster float32 by parts (fp32-split) would make a step.
#pragma once

#include <string>

#include "lab/predict/time_source.h"

namespace tracestep::cli {

// Predicts the gain by `source`. Empty if its device lacks `fp32-split`, or the gain is unknown or
// below 5 %.
std::string split_hint(const RunSpec& run, const TimeSource& source);
// Predicts the gain on the device that is here: from its calibration, or else from the published
// peaks of its name.
std::string split_hint(const RunSpec& run, const Json& environment);

}  // namespace tracestep::cli

// A hint about how much faster `--precision fp32-split` (float32 products as float16 parts) would
// make a step.
#pragma once

#include <string>

#include "lab/predict/time_source.h"

namespace tracestep::cli {

// Predicts the gain by `source`. Empty if its device lacks `fp32-split`, or the gain is unknown or
// below 5 %.
std::string split_hint(const RunSpec& run, const TimeSource& source);
// Predicts the gain on the device in this machine, from its calibration or else from the published
// peaks of its name.
std::string split_hint(const RunSpec& run, const Json& environment);

}  // namespace tracestep::cli

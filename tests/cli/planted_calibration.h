// Calibrations that nobody measured, for tests of what predicts from them.
#pragma once

#include "base/json.h"
#include "lab/predict/calibration.h"

namespace tracestep {

// A CPU whose kernels do an operation in a nanosecond, besides a microsecond each; it
// was made from steps in fp32.
Calibration planted_calibration(Json identity);

}  // namespace tracestep

// Calibrations that nobody measured, for tests of what predicts from them.
#pragma once

#include "base/json.h"
#include "lab/predict/calibration.h"

namespace tracestep {

// A calibration of a CPU whose kernels do an operation in a nanosecond, besides a microsecond each.
// Its steps were in fp32.
Calibration planted_calibration(Json identity);

}  // namespace tracestep

// Predicts the gain of `--precision fp32-split` over float32 for a step, before it is tried.
#pragma once

#include <optional>

#include "lab/predict/time_model.h"

namespace tracestep {

// How many times as fast the step of `run` would be, with the numbers of float32. `traits`,
// `model`: of a device that has such products. nullopt: the run is in another precision, on several
// ranks, or recomputes by a budget; or no kernel by parts was measured in the model's calibration.
std::optional<double> split_gain(const RunSpec& run, const DeviceTraits& traits,
                                 const TimeModel& model);

}  // namespace tracestep

// Predicts the gain of `--precision fp32-split` over float32 for a step, before it is tried.
#pragma once

#include <optional>

#include "lab/predict/time_model.h"

namespace tracestep {

// Returns how many times as fast the step of `run` would be with `fp32-split`, whose results are as
// precise as float32. `traits` and `model` are those of a device that has such products. nullopt if
// the run has another precision, several ranks or a recomputation budget, or if the model's
// calibration measured no such kernel.
std::optional<double> split_gain(const RunSpec& run, const DeviceTraits& traits,
                                 const TimeModel& model);

}  // namespace tracestep

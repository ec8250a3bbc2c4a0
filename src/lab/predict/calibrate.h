// Measures a calibration: runs small steps, once as they are and once with every kernel timed.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/measure/measurement.h"
#include "lab/predict/calibration.h"
#include "session/devices.h"

namespace tracestep {

struct CalibrationStep {
  RunSpec run;
  bool is_held_out = false;  // CalibratedStep::is_held_out
  // True: the step is large enough to draw the power of a long training. It runs for a while before
  // it is timed, and its median counts, so its times are at clocks that the device can sustain.
  bool is_sustained = false;
  // True: the step's power is measured afterwards. That of sustained steps always is.
  bool is_metered = false;
};
// Returns the steps of a calibration: models of one to three layers whose sizes are none of the
// presets', in each of these precisions, with composite kernels and without, with both forms of
// attention, eager and compiled.
std::vector<CalibrationStep> calibration_steps(const Place& place,
                                               std::span<const Precision> precisions);

// The input of a calibration. `progress` is called before each step.
struct CalibrationPlan {
  std::vector<CalibrationStep> steps;
  Json identity = {};  // calibration_identity()
  std::string date_utc = {};
  // Every step is measured at least once. When this many seconds have passed, no further round is
  // started.
  double most_seconds = 0;  // 0: all rounds
  // A calibration by the same plan that ended early; its steps are not measured again.
  std::optional<Calibration> begun = {};
  std::function<void(const std::string& step, std::size_t index, std::size_t count)> progress = {};
  // Called every few seconds with what is measured up to now, and when a signal to stop came.
  std::function<void(const Calibration& begun)> keep = {};
};
// Measures the calibration; nullopt: a signal to stop came. Throws Error{kOutOfMemory} naming the
// step.
std::optional<Calibration> calibrate(const DeviceFactory& make_device, const CalibrationPlan& plan,
                                     const StopSignal* stop = nullptr);

// The result of running steps of a calibration again, to see whether the device is still as fast.
struct SpotCheck {
  struct Step {
    std::string label;
    double then_ms = 0, now_ms = 0;
  };
  std::vector<Step> steps;
  double ratio = 1;  // The median of the times now over the calibrated times.
};
// Runs three of the held-out steps again, which takes a second or less if the device is as fast as
// before.
SpotCheck spot_check(const DeviceFactory& make_device, const Calibration& calibration,
                     const Place& place);
// Returns a sentence about the check; empty if the ratio is within `tolerance` of 1.
std::string verdict_of(const SpotCheck& check, const std::string& date_utc,
                       double tolerance = 0.15);

}  // namespace tracestep

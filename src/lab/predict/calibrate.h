// Measures what calibrations hold: small steps, once as they are and once with every kernel timed.
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
  // Large enough to draw the power that a long training draws: it runs for a while before it is
  // timed, and its median counts, so that its times are those that the device keeps up.
  bool is_sustained = false;
  bool is_metered = false;  // measures its power afterwards; sustained steps always do
};
// The steps of a calibration: models of one to three layers whose sizes are none of the presets',
// in each of these precisions, with composite kernels and without, with both forms of attention,
// eager and compiled.
std::vector<CalibrationStep> calibration_steps(const Place& place,
                                               std::span<const Precision> precisions);

// The input of a calibration. `progress` is called before each step.
struct CalibrationPlan {
  std::vector<CalibrationStep> steps;
  Json identity = {};  // calibration_identity()
  std::string date_utc = {};
  // Every step is measured once; rounds after that begin no step when this time is over.
  double most_seconds = 0;  // 0: all rounds
  // A calibration of the same plan that ended early: its steps are not measured again.
  std::optional<Calibration> begun = {};
  std::function<void(const std::string& step, std::size_t index, std::size_t count)> progress = {};
  // Called with what there is every few seconds, and when a signal to stop came.
  std::function<void(const Calibration& begun)> keep = {};
};
// nullopt: a signal to stop came. Errors: kOutOfMemory naming the step.
std::optional<Calibration> calibrate(const DeviceFactory& make_device, const CalibrationPlan& plan,
                                     const StopSignal* stop = nullptr);

// Steps of a calibration run again, to see whether the device still takes as long.
struct SpotCheck {
  struct Step {
    std::string label;
    double then_ms = 0, now_ms = 0;
  };
  std::vector<Step> steps;
  double ratio = 1;  // median of now over then
};
// Runs three of the steps held out again: a second or less on a device as it was.
SpotCheck spot_check(const DeviceFactory& make_device, const Calibration& calibration,
                     const Place& place);
// A sentence on the check: empty while the ratio is within `tolerance` of 1.
std::string verdict_of(const SpotCheck& check, const std::string& date_utc,
                       double tolerance = 0.15);

}  // namespace tracestep

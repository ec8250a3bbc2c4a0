// Predicts the time of a program's kernels and of a step. The model here uses a calibration of the
// device; lab/predict/published_times.h has one that uses a vendor's peaks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/roofline.h"
#include "lab/predict/calibration.h"
#include "lab/predict/timeline.h"

namespace tracestep {

// The predicted time of one component in one phase.
struct PredictedPart {
  Phase phase = Phase::kForward;
  std::string component;
  double ms = 0;
};

// The predicted time of one kernel class in one phase.
struct PredictedClass {
  Phase phase = Phase::kForward;
  KernelClass kernel_class = KernelClass::kElementwise;
  double ms = 0;
  std::int64_t launches = 0;
};

struct StepTime {
  double ms = 0;                   // The time of the step, including gaps between kernels.
  double low_ms = 0, high_ms = 0;  // The band in which nine of ten steps are expected.
  double kernels_ms = 0;           // The sum of all kernel times.
  double beside_ms = 0;            // The part of kernels_ms that overlaps other kernels.
  // The time of collectives, and the part of it during which nothing else runs (by Timeline); 0
  // without ranks.
  double collectives_ms = 0, exposed_ms = 0;
  double joules = 0;  // The energy of one device; 0: not known.
  std::int64_t launches = 0;
  std::vector<PredictedPart> parts;  // kernels_ms by phase and component, in the order of the step.
  std::vector<PredictedClass> classes;  // The same time by phase and class.
  // Kernels that were not calibrated, so that rates of their class are used.
  std::set<std::string> uncalibrated;
  double uncalibrated_ms = 0;  // The part of kernels_ms that is theirs.
};

class TimeModel {
 public:
  virtual ~TimeModel() = default;
  // Predicts the time of `program`, which is that of `run`. Collectives take the time that `link`
  // gives; without a link, their kernels' time is a guess.
  virtual StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                           const std::optional<Link>& link = {}) const = 0;
  // Says where the times come from: "calibrated on this device, 2026-11-22T10:00:00Z", "from
  // published peaks of H100".
  virtual std::string source() const = 0;
  // Returns the date of the calibration; empty: there is none, and no history corrects the times.
  virtual std::string date_utc() const { return {}; }
  // Returns the relative half-width of the band for a step whose kernels were all calibrated; 0:
  // there is no calibration.
  virtual double spread() const { return 0.0; }
  bool is_measured() const { return !date_utc().empty(); }
};

// Makes a model from a calibration: rates of every kernel that it has, fitted to the kernel's
// launches; for other kernels, the rates of their class; for products on a GPU, measured times by
// size. The band is the error on the held-out steps, of which nine of ten lie within it. Kernels
// that were not measured may take half or twice as long, which widens the band by their share.
std::unique_ptr<TimeModel> make_time_model(const Calibration& calibration);

}  // namespace tracestep

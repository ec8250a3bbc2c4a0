// Predicted time of a program's kernels and of a step, from a calibration of the device; from the
// peaks that a vendor publishes see lab/predict/published_times.h.
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

// Time that belongs together.
struct PredictedPart {
  Phase phase = Phase::kForward;
  std::string component;
  double ms = 0;
};

// The kernels of one class in one phase.
struct PredictedClass {
  Phase phase = Phase::kForward;
  KernelClass kernel_class = KernelClass::kElementwise;
  double ms = 0;
  std::int64_t launches = 0;
};

struct StepTime {
  double ms = 0;                              // of the step, with what lies between kernels
  double low_ms = 0, high_ms = 0;             // the band in which nine of ten steps are expected
  double kernels_ms = 0;                      // of all kernels, one after the other
  double beside_ms = 0;                       // of these, what runs while others do
  double collectives_ms = 0, exposed_ms = 0;  // Timeline's; 0 without ranks
  double joules = 0;                          // of one device; 0: not known
  std::int64_t launches = 0;
  std::vector<PredictedPart> parts;  // of kernels_ms, by phase and component, in order of the step
  std::vector<PredictedClass> classes;  // the same time by phase and class
  std::set<std::string> uncalibrated;   // kernels of which only the class was measured
  double uncalibrated_ms = 0;           // theirs, of kernels_ms
};

class TimeModel {
 public:
  virtual ~TimeModel() = default;
  // `program`: that of `run`. Collectives take what `link` says; without it, what other kernels
  // of theirs take, which is a guess.
  virtual StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                           const std::optional<Link>& link = {}) const = 0;
  // "calibrated on this device, 2026-11-22T10:00:00Z", "from published peaks of H100".
  virtual std::string source() const = 0;
  // When the device was calibrated; empty: it was not, and nothing that was measured corrects it.
  virtual std::string date_utc() const { return {}; }
  // The band of a step whose kernels were all calibrated is ± this share; 0: no calibration.
  virtual double spread() const { return 0.0; }
  bool is_measured() const { return !date_utc().empty(); }
};

// Rates of every kernel that the calibration has, fitted to its launches; of any other kernel,
// those of its class; of products on a GPU, the times of their sizes. The band is the error on the
// steps that were held out: nine of ten lie within it. Time of kernels that were not measured may
// be half or twice as long, which widens the band by their share.
std::unique_ptr<TimeModel> make_time_model(const Calibration& calibration);

}  // namespace tracestep

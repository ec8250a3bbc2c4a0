// A calibration holds how long a device's kernels took in a few small steps, and how much work each
// did. It is kept in a file; time_model.h predicts from it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/predict/product_times.h"
#include "lab/predict/rates.h"
#include "run/run_spec.h"
#include "run/words.h"

namespace tracestep {

// A measured step: its launches, with equal ones merged, and its whole time.
struct CalibratedStep {
  Json key;  // key_of() of its RunSpec
  ExecutorKind executor = ExecutorKind::kEager;
  double wall_ms = 0;   // The median time of the step without recording.
  double busy_ms = 0;   // The recorded time of all its kernels together.
  double issue_ms = 0;  // The time until the host has launched the whole step, without recording.
  double watts = 0;  // The power that the device drew while the step was repeated; 0: not measured.
  std::int64_t launches = 0;
  // True: the step is not used to fit rates but to check them.
  bool is_held_out = false;

  struct Launch {
    std::string kernel = {};
    KernelClass kernel_class = KernelClass::kElementwise;
    MeasuredWork work = {};
    std::int64_t count = 1;  // The number of launches with the same work.
    ProductShape product = {};
  };
  std::vector<Launch> kernels = {};
};

struct Calibration {
  // The device and the build; a calibration is valid for these only.
  Json identity;
  std::string date_utc;
  DeviceKind kind = DeviceKind::kCpu;
  bool is_asynchronous = false;
  CacheSizes caches = {};
  // The rate of the link to the host's memory, each way; 0: not measured, or there is no such link.
  double host_bytes_per_us = 0;
  // Products on a GPU, for ProductTimes: on a whole grid of sizes, and of sizes that steps have.
  std::vector<MeasuredProduct> products = {}, sized_products = {};
  std::vector<CalibratedStep> steps = {};
};

// Writes one JSON object with a checksum of its content.
std::string text_of(const Calibration& calibration);
// Reads a calibration. Throws Error{kInput} naming `where` if the text is damaged, of another
// version, or has impossible numbers; and, naming the difference, if `identity` is that of another
// device (an empty object fits any). Steps may only be missing in a calibration that ended early.
Calibration parse_calibration(const std::string& text, const std::string& where,
                              const Json& identity, bool may_lack_steps = false);

// Returns the number of multiprocessors of the calibrated device; 0: none, or not known.
std::int64_t multiprocessors_of(const Calibration& calibration);

// Returns the part of `environment` (lab/measure/environment.h) that identifies device and build.
Json calibration_identity(const Json& environment, const std::string& device);

}  // namespace tracestep

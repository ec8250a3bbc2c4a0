// Calibration: how long a device's kernels took in a few small steps, with what they had to do.
// Kept in a file; what is predicted from it is in time_model.h.
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

// A step that was run: its launches, alike ones merged, and its time as a whole.
struct CalibratedStep {
  Json key;  // key_of() of its RunSpec
  ExecutorKind executor = ExecutorKind::kEager;
  double wall_ms = 0;   // median, nothing recorded
  double busy_ms = 0;   // kernels' time, recorded: that of `kernels` together
  double issue_ms = 0;  // until the host had issued it, nothing recorded
  double watts = 0;     // drawn by the device while it ran again and again; 0: not measured
  std::int64_t launches = 0;
  // Rates are not fitted to this step: it shows how good they are.
  bool is_held_out = false;

  struct Launch {
    std::string kernel = {};
    KernelClass kernel_class = KernelClass::kElementwise;
    MeasuredWork work = {};
    std::int64_t count = 1;  // launches with the same work
    ProductShape product = {};
  };
  std::vector<Launch> kernels = {};
};

struct Calibration {
  // The device and the build: a calibration is for these alone.
  Json identity;
  std::string date_utc;
  DeviceKind kind = DeviceKind::kCpu;
  bool is_asynchronous = false;
  CacheSizes caches = {};
  // The rate of the link to the host's memory, each way; 0: not measured, or there is no such link.
  double host_bytes_per_us = 0;
  // Products of a GPU, for ProductTimes: whole grids, and those of sizes that steps have.
  std::vector<MeasuredProduct> products = {}, sized_products = {};
  std::vector<CalibratedStep> steps = {};
};

// Writes one JSON object with a checksum of its content.
std::string text_of(const Calibration& calibration);
// Errors: kInput naming `where` for text that is damaged, of another version, or holds numbers that
// no measurement gives; and when `identity` is that of another device, with what differs (an empty
// object is that of any). Only of one that ended early may steps be missing.
Calibration parse_calibration(const std::string& text, const std::string& where,
                              const Json& identity, bool may_lack_steps = false);

// The number of multiprocessors of its device; 0: it has none, or their number is not known.
std::int64_t multiprocessors_of(const Calibration& calibration);

// The part of `environment` (lab/measure/environment.h) that identifies a device and a build.
Json calibration_identity(const Json& environment, const std::string& device);

}  // namespace tracestep

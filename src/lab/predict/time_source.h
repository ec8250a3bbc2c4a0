// Chooses the model that predicts times: by a device's published peaks, or by the calibration of
// the device that is here. Errors are about the fields "published", "calibration" and "device".
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/predict/devices.h"
#include "lab/predict/predict.h"
#include "spec/run_grid.h"

namespace tracestep {

// Whose times are asked for.
struct TimeOptions {
  std::string published;              // a device's name; empty: the one that is here
  std::filesystem::path calibration;  // empty: a file of the cache folder
  std::string advice = {};            // the note of a source where no device's times are known
};

// Sets the kind of device that times are of: a GPU where one is named. Error{kUsage} when the grid
// has another device.
RunGrid on_timed_device(RunGrid grid, const TimeOptions& options);

// Gives `grid` the defaults of a plan (spec/planned.h), for the precisions of the device that is
// named, and returns the fields that have them. `devices`: that share the batch; 0: as the grid
// says.
std::vector<const RunField*> assume_planned(RunGrid& grid, const TimeOptions& options,
                                            std::int64_t devices = 0);
// Says in `environment` what is assumed of these runs, by field, and in a note below a table, by
// the flags that change it.
void say_assumed(std::span<const RunField* const> fields, std::span<const RunSpec> runs,
                 Json& environment, std::vector<std::string>& notes);

struct TimeSource {
  std::unique_ptr<TimeModel> model;  // nullptr: `note` says why
  std::vector<CheckedCell> history;
  std::string note;
  std::int64_t usable_bytes = 0;            // of a published device; 0: unknown
  const PublishedDevice* device = nullptr;  // likewise

  Predictor predictor() const { return {*model, history, {}, device}; }
};

// The source has no model for a device without a known time. Error{kUsage} about "published" for
// one whose peaks are not known, and for a name that leaves open which device is meant.
TimeSource published_source(const std::string& name);
// Removes the model of `source`, and says why, if the device has no products in `precision` and so
// no time.
void check_precision(const Precision& precision, TimeSource& source);
// Without a calibration there is no model; one that is damaged, or of another device, is
// Error{kInput}.
TimeSource time_source(const RunSpec& run, const TimeOptions& options, const Json& environment);

}  // namespace tracestep

// Chooses the model that predicts times: a device's published peaks, or the calibration of the
// device in this machine. Errors are about the fields "published", "calibration" and "device".
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/predict/devices.h"
#include "lab/predict/predict.h"
#include "spec/run_grid.h"

namespace tracestep {

// The device whose times are asked for.
struct TimeOptions {
  std::string published;  // The name of a published device; empty: the device in this machine.
  std::filesystem::path calibration;  // The calibration file; empty: the one in the cache folder.
  std::string advice = {};            // The note to show if no device's times are known.
};

// Sets the grid's kind of device to that of the times: a GPU if one is named. Throws Error{kUsage}
// if the grid names another device.
RunGrid on_timed_device(RunGrid grid, const TimeOptions& options);

// Gives `grid` a plan's defaults (spec/planned.h), with precisions that the named device has, and
// returns the fields that were set. `devices`: how many share the batch; 0: as the grid says.
std::vector<const RunField*> assume_planned(RunGrid& grid, const TimeOptions& options,
                                            std::int64_t devices = 0);

struct TimeSource {
  std::unique_ptr<TimeModel> model;  // The model of times; nullptr: `note` says why there is none.
  std::vector<CheckedCell> history;
  std::string note;
  std::int64_t usable_bytes = 0;  // The usable memory of a published device; 0: not known.
  const PublishedDevice* device = nullptr;  // The published device; nullptr: none.

  Predictor predictor() const { return {*model, history, {}, device}; }
};

// Returns the times by a data sheet, without a model if times cannot be predicted for the device.
// Throws Error{kUsage} about "published" for a device without known peaks, and for an ambiguous
// name.
TimeSource published_source(const std::string& name);
// Removes the model of `source`, and says why, if the device has no products in `precision` and so
// no time.
void check_precision(const Precision& precision, TimeSource& source);
// Returns the source of times that `options` name. Without a calibration it has no model. Throws
// Error{kInput} for a calibration that is damaged or of another device.
TimeSource time_source(const RunSpec& run, const TimeOptions& options, const Json& environment);

}  // namespace tracestep

#include "lab/predict/time_source.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/predict/prediction_files.h"
#include "planning/device_traits.h"
#include "spec/planned.h"

namespace tracestep {

RunGrid on_timed_device(RunGrid grid, const TimeOptions& options) {
  if (options.published.empty()) return grid;
  if (!options.calibration.empty()) {
    throw Error(ErrorCode::kUsage, "calibration"_field,
                fmt::format("times of {} are from its data sheet", options.published),
                "leave it out, or leave out " TRACESTEP_OPTION(published));
  }
  const RunField& field = field_named("device");
  if (!grid.is_given(field.name)) {
    grid.offer(field.name, {"cuda"});
  } else if (const std::string given = grid.texts(field).front();
             !traits_named(given).has_own_memory()) {
    throw Error(
        ErrorCode::kUsage, "device"_field,
        fmt::format("{} is a GPU, and the program for {} is another one", options.published, given),
        "give " TRACESTEP_OPTION(device) " cuda, or leave it out");
  }
  return grid;
}

std::vector<const RunField*> assume_planned(RunGrid& grid, const TimeOptions& options,
                                            std::int64_t devices) {
  PlannedFor planned{.devices = std::max<std::int64_t>(1, devices)};
  if (!options.published.empty()) {
    const PublishedDevice* device =
        require_device("published"_field, options.published).devices.front();
    planned.multiplies_in = [device](const Precision& precision) {
      return device->product_tflops(precision) > 0;
    };
  }
  for (const RunChange& change : grid.changes("parallel")) {
    RunSpec run;
    change(run);
    if (devices == 0) {
      planned.devices = std::max<std::int64_t>(planned.devices, run.parallel.replicas());
    }
  }
  return assume_planned(grid, planned);
}

TimeSource published_source(const std::string& name) {
  const DevicesOfName found = require_device("published"_field, name);
  const PublishedDevice& device = *found.devices.front();
  constexpr double kGiB = 1 << 30;
  TimeSource out;
  out.device = &device;
  out.usable_bytes = static_cast<std::int64_t>(device.usable_gib * kGiB);
  if (!device.has_times()) {
    out.note = fmt::format(
        "bytes are those of a GPU's program; no times of {}: nothing here runs on a device of {}",
        device.name, device.maker);
    return out;
  }
  out.model = make_time_model(device, device.shares);
  out.note =
      fmt::format("times are from published peaks of {}: nothing was measured on it", device.name);
  std::vector<std::string> others;
  for (const PublishedDevice* other : found.others) others.push_back(other->name);
  if (!others.empty()) {
    out.note +=
        fmt::format("; \"{}\" is taken for it, not for {}", name, fmt::join(others, " or "));
  }
  return out;
}

void check_precision(const Precision& precision, TimeSource& source) {
  if (source.device == nullptr || source.device->product_tflops(precision) > 0) return;
  source.model = nullptr;
  source.note = fmt::format("{} has no products in {} by its data sheet ({})", source.device->name,
                            name_of(precision), source.device->source);
}

TimeSource time_source(const RunSpec& run, const TimeOptions& options, const Json& environment) {
  if (!options.published.empty()) {
    TimeSource source = published_source(options.published);
    if (source.model) check_precision(run.precision, source);
    return source;
  }
  const PredictionFiles files = prediction_files(run, options.calibration);
  if (options.calibration.empty() && !std::filesystem::exists(files.calibration)) {
    return {.model = nullptr, .history = {}, .note = options.advice};
  }
  KnownDevice known = read_known_device(files, calibration_identity(environment, run.place.device));
  std::string note = fmt::format(
      "times: {}, which predicts its own steps within {:.0f} %; whether the device is still as "
      "fast was not looked at (predict does)",
      known.model->source(), 100 * known.model->spread());
  return {.model = std::move(known.model),
          .history = std::move(known.history),
          .note = std::move(note)};
}

}  // namespace tracestep

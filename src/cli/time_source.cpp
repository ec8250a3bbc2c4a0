#include "cli/time_source.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "cli/cuda.h"
#include "cli/prediction_files.h"
#include "lab/published/tables.h"

namespace tracestep::cli {

void add_time_options(OptionSet& set, TimeOptions& options) {
  set.text("--published", "NAME", options.published,
           "predict for a device by its published peaks: A100, H100, H200, B200, RTX 5090, and "
           "others");
  set.path("--calibration", "FILE", options.calibration,
           "the calibration of this device; the history of checks stands beside it");
}

RunGrid on_timed_device(RunGrid grid, const TimeOptions& options) {
  if (options.published.empty()) return grid;
  const RunField& field = field_named("device");
  if (!grid.is_given(field.name)) {
    grid.offer(field.name, {"cuda"});
  } else if (const std::string given = grid.texts(field).front(); !cuda_index(given)) {
    throw Error(
        ErrorCode::kUsage, "--device",
        fmt::format("{} is a GPU, and the program for {} is another one", options.published, given),
        "give --device cuda, or leave it out");
  }
  return grid;
}

TimeSource published_source(const std::string& name) {
  const PublishedDevice* device = known_device(name);
  if (device == nullptr) {
    const std::vector<std::string> known = published_device_names();
    throw Error(ErrorCode::kUsage, "--published",
                fmt::format("no peaks of \"{}\" are known{}", name, did_you_mean(name, known)),
                fmt::format("known are {}", fmt::join(known, ", ")));
  }
  constexpr double kGiB = 1 << 30;
  TimeSource out;
  out.model = make_time_model(*device);
  out.note =
      fmt::format("times are from published peaks of {}: nothing was measured on it", device->name);
  out.usable_bytes = static_cast<std::int64_t>(device->usable_gib * kGiB);
  return out;
}

TimeSource time_source(const RunSpec& run, const TimeOptions& options, const Json& environment) {
  if (!options.published.empty()) return published_source(options.published);
  const PredictionFiles files = prediction_files(run, options.calibration);
  if (options.calibration.empty() && !std::filesystem::exists(files.calibration)) {
    constexpr const char* kNone =
        "for times add --published H100, or measure this device once: tracestep predict "
        "--calibrate";
    return {.model = nullptr, .history = {}, .note = kNone};
  }
  KnownDevice known = read_known_device(files, calibration_identity(environment, run.place.device));
  std::string note = fmt::format(
      "times: {}, which predicts its own steps within {:.0f} %; whether the device is still as "
      "fast "
      "was not looked at (predict does)",
      known.model->source(), 100 * known.model->spread());
  return {.model = std::move(known.model),
          .history = std::move(known.history),
          .note = std::move(note)};
}

}  // namespace tracestep::cli

#include "cli/split_hint.h"

#include "base/error.h"
#include "cli/devices.h"
#include "lab/predict/split_gain.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

constexpr double kLeastGain = 1.05;

const PublishedDevice* device_of(const Json& environment) {
  const Json* gpu = environment.find("gpu");
  return gpu != nullptr && gpu->is_string() ? known_device(gpu->as_string()) : nullptr;
}

// Returns times by this device's calibration, or by its data sheet if none is there or readable.
TimeSource source_here(const RunSpec& run, const Json& environment, const PublishedDevice& device) {
  try {
    TimeSource found = time_source(run, {}, environment);
    if (found.model) return found;
  } catch (const Error&) {
  }
  return published_source(device.name);
}

std::string hint_of(const RunSpec& run, const TimeModel& model) {
  const std::optional<double> gain = split_gain(run, traits_of(run.place), model);
  if (!gain || *gain < kLeastGain) return {};
  return fmt::format(
      "--precision fp32-split, as accurate as fp32, would make a step {:.1f} times as fast: "
      "predicted {}",
      *gain, model.source());
}

}  // namespace

std::string split_hint(const RunSpec& run, const TimeSource& source) {
  const bool has_parts = source.device != nullptr && source.device->multiplies_by_parts;
  return has_parts && source.model ? hint_of(run, *source.model) : std::string();
}

std::string split_hint(const RunSpec& run, const Json& environment) {
  const PublishedDevice* device = device_of(environment);
  if (device == nullptr || !device->multiplies_by_parts || run.precision != Precision()) return {};
  const TimeSource source = source_here(run, environment, *device);
  return source.model ? hint_of(run, *source.model) : std::string();
}

}  // namespace tracestep::cli

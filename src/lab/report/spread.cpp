#include "lab/report/spread.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"

namespace tracestep {
namespace {

struct TimeUnit {
  const char* name;
  double ms;
};

TimeUnit time_unit_of(double ms) {
  for (const TimeUnit& unit : {TimeUnit{"s", 1e3}, {"ms", 1}, {"µs", 1e-3}}) {
    if (ms >= unit.ms) return unit;
  }
  return {"ns", 1e-6};
}

int magnitude_of(double value) {
  return static_cast<int>(std::floor(std::log10(value)));
}

}  // namespace

std::string not_zero(double value, const std::string& digits) {
  std::string out = fmt::format(fmt::runtime(fmt::format("{{:{}}}", digits)), value);
  const bool reads_zero = out.find_first_of("123456789") == std::string::npos;
  return reads_zero && value != 0.0 ? fmt::format("{:.1g}", value) : out;
}

std::string mean_and_deviation(double mean_ms, double deviation_ms) {
  if (std::isnan(deviation_ms)) return format_duration_ms(mean_ms);
  const TimeUnit unit = time_unit_of(std::max(std::abs(mean_ms), deviation_ms));
  const double value = mean_ms / unit.ms, by = deviation_ms / unit.ms;
  // The deviation in two digits, or in one where the time would have more than four.
  const double smallest = by > 0 ? by : std::max(std::abs(value) / 100, 1e-3);
  int digits = std::clamp(1 - magnitude_of(smallest), 0, 3);
  const bool is_long = digits + magnitude_of(std::max(std::abs(value), 1e-9)) > 3;
  if (is_long) digits = std::clamp(-magnitude_of(smallest), 0, 3);
  const std::string as = fmt::format(".{}f", digits);
  return fmt::format("{} ± {} {}", not_zero(value, as), not_zero(by, as), unit.name);
}

std::string time_and_band(double ms, double low_ms, double high_ms) {
  const TimeUnit unit = time_unit_of(ms);
  const double value = std::max(ms / unit.ms, 1e-9);
  const std::string as = fmt::format(".{}f", std::clamp(1 - magnitude_of(value), 0, 3));
  const auto number = [&](double time) { return not_zero(time / unit.ms, as); };
  return fmt::format("{} {} ({} to {})", number(ms), unit.name, number(low_ms), number(high_ms));
}

}  // namespace tracestep

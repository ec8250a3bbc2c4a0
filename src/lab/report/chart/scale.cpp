#include "lab/report/chart/scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::array<const char*, 6> kByteUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

// Returns the step between ticks; a step below 1 as -1 / step, which is a whole number, so that
// ticks are rounded once.
double tick_increment(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::floor(std::log(rough) / std::numbers::ln10);
  const double error = rough / std::pow(10.0, power);
  const double factor = error >= std::sqrt(50.0)   ? 10
                        : error >= std::sqrt(10.0) ? 5
                        : error >= std::sqrt(2.0)  ? 2
                                                   : 1;
  return power >= 0 ? factor * std::pow(10.0, power) : -std::pow(10.0, -power) / factor;
}

double power_of(int base, double exponent) {
  return std::pow(static_cast<double>(base), exponent);
}

double log_of(int base, double value) {
  return base == 10 ? std::log10(value) : std::log2(value);
}

// Returns the exponent of 1024 with which byte counts of this size are shown.
int byte_exponent(double bytes) {
  const double size = std::abs(bytes);
  if (size < 1024) return 0;
  return std::min(static_cast<int>(std::log2(size) / 10), static_cast<int>(kByteUnits.size()) - 1);
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int count) {
  if (count <= 0) return {};
  if (low == high) return {low};
  const double step = tick_increment(low, high, count);
  if (step == 0 || !std::isfinite(step)) return {};
  const bool is_whole = step > 0;
  const double size = std::abs(step);
  const auto value = [&](double i) { return is_whole ? i * size : i / size; };
  double first = std::round(is_whole ? low / size : low * size);
  double last = std::round(is_whole ? high / size : high * size);
  if (value(first) < low) ++first;
  if (value(last) > high) --last;
  std::vector<double> out;
  for (double i = first; i <= last; ++i) out.push_back(value(i));
  return out;
}

std::vector<Tick> log_ticks(double low, double high, int base, int count) {
  const double from = log_of(base, low), to = log_of(base, high);
  std::vector<Tick> out;
  if (to - from >= count) {  // more powers than ticks
    const int wanted = static_cast<int>(std::min(to - from, static_cast<double>(count)));
    for (double e : linear_ticks(from, to, wanted)) out.push_back({power_of(base, e)});
    return out;
  }
  for (double e = std::round(from) - 1; e < std::round(to) + 1; ++e) {
    for (int k = 1; k < base; ++k) {
      const double value = k * power_of(base, e);
      if (value >= low && value <= high) out.push_back({value});
    }
  }
  // If there are too many labels, only ticks that begin with 1, 2 or 5 get one, or only those with
  // 1.
  if (out.size() <= static_cast<std::size_t>(count)) return out;
  const auto label = [&](std::span<const int> digits) {
    int labelled = 0;
    for (Tick& tick : out) {
      const double power = power_of(base, std::floor(log_of(base, tick.value) + 1e-9));
      tick.is_labelled = std::ranges::find(digits, std::lround(tick.value / power)) != digits.end();
      labelled += tick.is_labelled;
    }
    return labelled;
  };
  constexpr std::array kRound = {1, 2, 5};
  constexpr double kRoom = 1.3;  // labels that do not fit are left out one by one
  if (label(kRound) > kRoom * count) label(std::span(kRound).first(1));
  return out;
}

Scale::Scale(Range values, Range pixels, bool is_log, AxisUnit unit)
    : values_(values), pixels_(pixels), is_log_(is_log), unit_(unit) {
  TRACESTEP_CHECK(!is_log || values.low > 0, "a logarithmic axis from {}", values.low);
}

double Scale::at(double value) const {
  const auto place = [this](double v) { return is_log_ ? std::log(v) : v; };
  const double span = place(values_.high) - place(values_.low);
  const double share = span == 0 ? 0.5 : (place(value) - place(values_.low)) / span;
  return pixels_.low + share * (pixels_.high - pixels_.low);
}

std::vector<Tick> Scale::ticks(int count) const {
  if (is_log_) {
    return log_ticks(values_.low, values_.high, unit_ == AxisUnit::kBytes ? 2 : 10, count);
  }
  const double unit =
      unit_ == AxisUnit::kBytes
          ? std::pow(1024.0, byte_exponent(std::max(std::abs(values_.low), std::abs(values_.high))))
          : 1.0;
  std::vector<Tick> out;
  for (double v : linear_ticks(values_.low / unit, values_.high / unit, count)) {
    out.push_back({v * unit});
  }
  return out;
}

std::string tick_text(double value, AxisUnit unit) {
  if (unit == AxisUnit::kBytes) {
    const int exponent = byte_exponent(value);
    return fmt::format("{:.4g} {}", value / std::pow(1024.0, exponent),
                       kByteUnits[static_cast<std::size_t>(exponent)]);
  }
  constexpr std::array<std::pair<double, char>, 4> kLetters = {
      {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e15) {
    for (const auto& [factor, letter] : kLetters) {
      if (size >= factor) return fmt::format("{:.4g}{}", value / factor, letter);
    }
  }
  return fmt::format("{:.4g}", value);
}

}  // namespace tracestep

#include "lab/pages/figures.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/pages/formula.h"

namespace tracestep::pages {
namespace {

// `digits` as fmt has them; a number that is not zero does not read as zero.
std::string not_zero(double value, const std::string& digits) {
  std::string out = fmt::format(fmt::runtime(fmt::format("{{:{}}}", digits)), value);
  const bool reads_zero = out.find_first_of("123456789") == std::string::npos;
  return reads_zero && value != 0.0 ? fmt::format("{:.1g}", value) : out;
}

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

// "25.4 ± 0.9 ms"
std::string time_and_deviation(const Quantity& ms) {
  const double off = ms.high - ms.value;
  const TimeUnit unit = time_unit_of(std::max(std::abs(ms.value), off));
  const double value = ms.value / unit.ms, by = off / unit.ms;
  // The deviation in two digits, or in one where the time would have more than four.
  const double smallest = by > 0 ? by : std::max(std::abs(value) / 100, 1e-3);
  const auto magnitude = [](double v) { return static_cast<int>(std::floor(std::log10(v))); };
  int digits = std::clamp(1 - magnitude(smallest), 0, 3);
  const bool is_long = digits + magnitude(std::max(std::abs(value), 1e-9)) > 3;
  if (is_long) digits = std::clamp(-magnitude(smallest), 0, 3);
  const std::string as = fmt::format(".{}f", digits);
  return fmt::format("{} ± {} {}", not_zero(value, as), not_zero(by, as), unit.name);
}

// "1.58 (95 %: 1.41 to 1.66)"; alone where nothing is known of its noise, or where there is none.
std::string factor_and_interval(const Quantity& q) {
  const bool is_known = std::isfinite(q.low) && std::isfinite(q.high) && q.low < q.high;
  const std::string as = is_known && q.high - q.low < 0.02 ? ".3f" : ".2f";
  const std::string out = not_zero(q.value, as);
  if (!is_known) return out;
  return fmt::format("{} (95 %: {} to {})", out, not_zero(q.low, as), not_zero(q.high, as));
}

// "43 ms (28 to 64)": a time of which two digits are known, and its band in the same unit.
std::string time_and_band(const Quantity& ms) {
  const TimeUnit unit = time_unit_of(ms.value);
  const double value = std::max(ms.value / unit.ms, 1e-9);
  const std::string as =
      fmt::format(".{}f", std::clamp(1 - static_cast<int>(std::floor(std::log10(value))), 0, 3));
  const auto number = [&](double time) { return not_zero(time / unit.ms, as); };
  return fmt::format("{} {} ({} to {})", number(ms.value), unit.name, number(ms.low),
                     number(ms.high));
}

}  // namespace

Text shown(const Quantity& q, std::string_view unit) {
  const auto figure = [&](std::string words) {
    return Text(Piece{std::move(words), Basis::kFigure, q.formula});
  };
  if (unit == "ms") return duration(q);
  if (unit == "± ms") return figure(time_and_deviation(q));
  if (unit == "ms band") return figure(time_and_band(q));
  if (unit == "bytes") return bytes(q);
  if (unit == "percent") return percent(q);
  if (unit == "%") return figure(fmt::format("{:.4g} %", q.value));
  if (unit == "+percent") return signed_percent(q);
  if (unit == "factor") return decimal(q, std::abs(q.value - 1) >= 0.05 ? 2 : 3);
  if (unit == "± factor") return figure(factor_and_interval(q));
  if (unit == "count" && q.value == std::floor(q.value)) return whole(q);
  if (unit == "count") return figure(plain_number(q.value));
  constexpr std::string_view kCountOf = "count ";
  if (unit.starts_with(kCountOf)) {
    const std::string_view noun = unit.substr(kCountOf.size());
    return q.value == 1 ? figure(fmt::format("one {}", noun))
                        : whole(q) + Text(Piece{fmt::format(" {}s", noun)});
  }
  if (unit == "flops") return figure(format_flops(q.value));
  if (unit == "tflops") return figure(format_flop_rate(q.value * 1e12));
  if (unit == "ratio") return figure(fmt::format("{:.4g}", q.value));
  const bool is_digits = !unit.empty() && unit.find_first_not_of(".0123456789gfe") == unit.npos;
  TRACESTEP_CHECK(is_digits, "\"{}\" is no unit", unit);
  return figure(not_zero(q.value, std::string(unit)));
}

}  // namespace tracestep::pages

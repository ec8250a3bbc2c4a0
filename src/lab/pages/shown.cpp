#include "lab/pages/figures.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/pages/formula.h"
#include "lab/report/spread.h"

namespace tracestep::pages {
namespace {

// Writes "1.58 (95 %: 1.41 to 1.66)", or the factor alone where no noise of it is known.
std::string factor_and_interval(const Quantity& q) {
  const bool is_known = std::isfinite(q.low) && std::isfinite(q.high) && q.low < q.high;
  const std::string as = is_known && q.high - q.low < 0.02 ? ".3f" : ".2f";
  const std::string out = not_zero(q.value, as);
  if (!is_known) return out;
  return fmt::format("{} (95 %: {} to {})", out, not_zero(q.low, as), not_zero(q.high, as));
}

// Writes mean and deviation. CHECKs that it is no median: a deviation is about the mean.
std::string mean_of_samples(const Quantity& ms) {
  TRACESTEP_CHECK(ms.formula.find("median") == std::string::npos,
                  "{}: a standard deviation stands after a mean", ms.formula);
  return mean_and_deviation(ms.value, ms.high - ms.value);
}

}  // namespace

Text shown(const Quantity& q, std::string_view unit) {
  const auto figure = [&](std::string words) {
    return Text(Piece{std::move(words), Basis::kFigure, q.formula});
  };
  if (unit == "ms") return duration(q);
  if (unit == "± ms") return figure(mean_of_samples(q));
  if (unit == "ms band") return figure(time_and_band(q.value, q.low, q.high));
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

#include "lab/measure/noise.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/statistics.h"

namespace tracestep {

Quantity median_in(const Evidence::Row& row, std::string_view column) {
  const std::vector<double> samples = row.numbers(column);
  const std::string formula = fmt::format("median({})", row.formula(column));
  Quantity out = Quantity::exact(median_of(samples), formula);
  const Interval interval = median_interval(samples);
  const bool is_alone = samples.size() == 1;
  out.low = is_alone ? std::min(0.0, 2 * out.value) : interval.low;
  out.high = is_alone ? std::max(0.0, 2 * out.value) : interval.high;
  return out;
}

Quantity spread_percent_in(const Evidence::Row& row, std::string_view column) {
  const Quantity range = most_in(row, column) - least_in(row, column);
  return 100.0 * range / median_in(row, column);
}

}  // namespace tracestep

#include "lab/measure/noise.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/processes.h"

namespace tracestep {

namespace {

TimedSamples samples_in(const Evidence::Row& row, std::string_view column) {
  std::vector<double> counts;
  for (const std::string& name : {counts_column(column), visits_column(column)}) {
    if (counts.empty() && row.has(name) && row.is_list(name)) counts = row.numbers(name);
  }
  return TimedSamples(row.numbers(column), counts);
}

}  // namespace

Quantity median_in(const Evidence::Row& row, std::string_view column) {
  const TimedSamples timed = samples_in(row, column);
  Quantity out =
      Quantity::exact(median_of(timed.ms), fmt::format("median({})", row.formula(column)));
  const bool is_alone = timed.spread().size() == 1;
  out.low = is_alone ? std::min(0.0, 2 * out.value) : timed.interval.low;
  out.high = is_alone ? std::max(0.0, 2 * out.value) : timed.interval.high;
  return out;
}

Quantity time_of(const Evidence::Row& row) {
  return row.has("plain_wall_ms") ? row.get("plain_wall_ms") : median_in(row, "samples_ms");
}

Quantity paired_in(const Evidence::Row& a, std::string_view column_a, const Evidence::Row& b,
                   std::string_view column_b) {
  constexpr std::size_t kFewest = 3;
  const std::vector<double> of_a = samples_in(a, column_a).medians,
                            of_b = samples_in(b, column_b).medians;
  if (of_a.size() != of_b.size() || of_a.size() < kFewest) {
    return median_in(a, column_a) / median_in(b, column_b);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of_a.size(); ++i) ratios.push_back(of_a[i] / of_b[i]);
  Quantity out = Quantity::exact(
      median_of(ratios), fmt::format("paired({}, {})", a.formula(column_a), b.formula(column_b)));
  const Interval interval = median_interval(ratios);
  out.low = interval.low;
  out.high = interval.high;
  return out;
}

Quantity spread_percent_in(const Evidence::Row& row, std::string_view column) {
  const Quantity range = most_in(row, column) - least_in(row, column);
  return 100.0 * range / median_in(row, column);
}

}  // namespace tracestep

#include "lab/measure/noise.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/processes.h"

namespace tracestep {

namespace {

TimedSamples samples_in(const Evidence::Row& row, std::string_view column) {
  std::vector<double> counts;
  bool are_visits = false;
  for (const std::string& name : {counts_column(column), visits_column(column)}) {
    if (!counts.empty() || !row.has(name) || !row.is_list(name)) continue;
    counts = row.numbers(name);
    are_visits = name == visits_column(column);
  }
  return TimedSamples(row.numbers(column), counts, are_visits);
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
  const auto pairs = paired_medians(samples_in(a, column_a), samples_in(b, column_b));
  if (!pairs) return median_in(a, column_a) / median_in(b, column_b);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < pairs->a.size(); ++i) ratios.push_back(pairs->a[i] / pairs->b[i]);
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

#include "lab/measure/processes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

constexpr std::string_view kSamples = "samples_ms";

// Columns of which a merged row has the median over its processes, as of columns of times.
constexpr std::array<std::string_view, 3> kMedians = {"untracked_bytes", "outside_bytes",
                                                      "others_cores"};
constexpr std::array<std::string_view, 1> kSums = {"major_faults"}, kMost = {"roof_tflops"};
constexpr std::array<std::string_view, 2> kLast = {"facts_after", "host_after"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the numbers in `list`, none if it is no list; numbers_of(): a column's, of all rows.
std::vector<double> numbers_in(const Json* list) {
  std::vector<double> out;
  if (list == nullptr || !list->is_array()) return out;
  for (const Json& item : list->items()) {
    if (item.is_number()) out.push_back(item.as_double());
  }
  return out;
}

std::vector<double> numbers_of(std::span<const Json> rows, std::string_view column) {
  std::vector<double> out;
  for (const Json& row : rows) {
    const Json* cell = row.find(column);
    if (cell != nullptr && cell->is_number()) out.push_back(cell->as_double());
  }
  return out;
}

// Returns `value` as a number of the kind that `cell` is: bytes and counts stay whole numbers.
Json like(const Json& cell, double value) {
  return cell.is_int() ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json counts_of(const TimedSamples& samples) {
  Json out = Json::array();
  for (double count : samples.counts) out.push_back(static_cast<std::int64_t>(count));
  return out;
}

// Joins the samples of a column, with how many of them each process took.
TimedSamples joined(std::span<const Json> rows, std::string_view column) {
  std::vector<double> all, counts;
  for (const Json& row : rows) {
    const std::vector<double> ms = numbers_in(row.find(column));
    const std::vector<double> own = numbers_in(row.find(counts_column(column)));
    all.insert(all.end(), ms.begin(), ms.end());
    if (!own.empty()) {
      counts.insert(counts.end(), own.begin(), own.end());
    } else if (!ms.empty()) {
      counts.push_back(static_cast<double>(ms.size()));
    }
  }
  return TimedSamples(std::move(all), std::move(counts));
}

void add_speed(Json& row, double median_ms) {
  const auto number = [&](std::string_view column) {
    const Json* cell = row.find(column);
    return cell != nullptr && cell->is_number() ? cell->as_double() : 0.0;
  };
  if (!(median_ms > 0)) return;
  if (number("tflops") > 0) row["tflops"] = number("flops") / median_ms * 1e-9;
  if (number("tokens_per_s") > 0) {
    const double micro_batches = std::max(1.0, number("accumulate"));
    row["tokens_per_s"] = micro_batches * number("batch") * number("context") / median_ms * 1e3;
  }
}

Field<TimedSamples> ms_of(std::string name, std::string title, std::string text,
                          double Summary::*member) {
  return {real_column(std::move(name), std::move(title), "ms", 3, std::move(text)),
          [member](const TimedSamples& s) { return finite_or_null(s.summary.*member); }};
}

}  // namespace

TimedSamples::TimedSamples(std::vector<double> samples_ms, std::vector<double> of_each,
                           bool are_of_visits)
    : ms(std::move(samples_ms)),
      counts(std::move(of_each)),
      are_visits(are_of_visits),
      medians(process_medians(by_process(ms, counts))),
      summary(summarize(ms)),
      interval(median_interval(spread())) {}

std::optional<PairedMedians> paired_medians(const TimedSamples& a, const TimedSamples& b) {
  constexpr std::size_t kFewest = 3;
  const std::size_t pairs = std::min(a.medians.size(), b.medians.size());
  const bool are_visits = a.are_visits && b.are_visits;
  if (pairs < kFewest || (!are_visits && a.medians.size() != b.medians.size())) return {};
  const auto first = [pairs](const TimedSamples& of) {
    return std::vector<double>(of.medians.begin(),
                               of.medians.begin() + static_cast<std::ptrdiff_t>(pairs));
  };
  return PairedMedians{first(a), first(b)};
}

ProcessSamples by_process(std::span<const double> samples, std::span<const double> counts) {
  ProcessSamples out;
  if (counts.empty()) {
    if (!samples.empty()) out.emplace_back(samples.begin(), samples.end());
    return out;
  }
  std::size_t begin = 0;
  for (double count : counts) {
    if (!(count >= 1) || count > static_cast<double>(samples.size() - begin)) return {};
    const auto length = static_cast<std::size_t>(count);
    const auto part = samples.subspan(begin, length);
    out.emplace_back(part.begin(), part.end());
    begin += length;
  }
  return begin == samples.size() ? out : ProcessSamples();
}

std::vector<double> process_medians(const ProcessSamples& processes) {
  std::vector<double> out;
  for (const std::vector<double>& samples : processes) out.push_back(median_of(samples));
  return out;
}

std::string counts_column(std::string_view samples_column) {
  return std::string(samples_column.substr(0, samples_column.size() - kSamples.size())) +
         "process_samples";
}

std::string visits_column(std::string_view samples_column) {
  return std::string(samples_column.substr(0, samples_column.size() - kSamples.size())) +
         "visit_samples";
}

Column visits_field(std::string_view samples_column) {
  return data_only(reals_column(visits_column(samples_column),
                                "how many of the samples each visit of a round took, in their "
                                "order; empty: all are of one"));
}

Json visit_counts(const TimedSamples& samples) {
  return when(samples.are_visits && !samples.counts.empty(), counts_of(samples));
}

std::string_view measure_of(std::string_view samples_column) {
  const std::size_t end = samples_column.size() - kSamples.size();
  return samples_column.substr(0, end == 0 ? 0 : end - 1);
}

Fields<TimedSamples> interval_fields() {
  return {
      {data_only(real_column(
           "interval_low_ms", "95 % from", "ms", 3,
           "lower end of the 95 % interval of the median, an order statistic of the samples "
           "or, with several processes or visits, of their medians; empty with fewer than six")),
       [](const TimedSamples& s) { return when(s.has_interval(), s.interval.low); }},
      {data_only(real_column("interval_high_ms", "95 % to", "ms", 3, "the upper end")),
       [](const TimedSamples& s) { return when(s.has_interval(), s.interval.high); }}};
}

Fields<TimedSamples> sample_columns() {
  Fields<TimedSamples> out = {
      {as_samples(reals_column(std::string(kSamples), "wall time of each timed step")),
       [](const TimedSamples& s) { return list_of(s.ms); }},
      {reals_column(counts_column(kSamples),
                    "how many of the samples each process took, in their order; empty: all are of "
                    "one process"),
       [](const TimedSamples& s) {
         return when(!s.are_visits && !s.counts.empty(), counts_of(s));
       }},
      {visits_field(kSamples), visit_counts},
      ms_of("mean_ms", "mean", "of the samples", &Summary::mean),
      ms_of("std_ms", "std", "sample standard deviation", &Summary::sample_std),
      ms_of("median_ms", "median", "of the samples", &Summary::median),
      ms_of("min_ms", "min", "of the samples", &Summary::min),
      ms_of("p95_ms", "p95", "95th percentile, linear between samples", &Summary::p95)};
  for (Field<TimedSamples> field : interval_fields()) {
    field.column.data_only = false;
    out.add(std::move(field.column), std::move(field.get));
  }
  return out.add(real_column("noise_percent", "noise", "±%", 2,
                             "half that interval, in percent of the median"),
                 [](const TimedSamples& s) {
                   return s.has_interval() ? Json(noise_percent_of(s.spread())) : Json();
                 });
}

Json merged_row(std::span<const Json> rows, std::span<const Column> columns) {
  for (Json row : rows) {
    const Json* status = row.find("status");
    if (status == nullptr || *status == Json("ok")) continue;
    const Json::Object members = row.members();
    for (const auto& [name, cell] : members) {
      if (name.ends_with(kSamples)) row[counts_column(name)];  // the columns of other rows
    }
    return row;
  }
  const auto is_timed = [&](const std::string& name) {
    const auto column = std::ranges::find(columns, name, &Column::name);
    return column != columns.end() && timing_of(*column) != Timing::kNone;
  };
  Json out = rows.front();
  for (const auto& [name, cell] : rows.front().members()) {
    if (is_one_of(name, kLast)) out[name] = rows.back().at(name);
    if (!cell.is_number()) continue;
    const std::vector<double> all = numbers_of(rows, name);
    if (is_one_of(name, kMost)) {
      out[name] = like(cell, *std::ranges::max_element(all));
    } else if (is_one_of(name, kSums)) {
      out[name] = like(cell, std::accumulate(all.begin(), all.end(), 0.0));
    } else if (is_one_of(name, kMedians) || is_timed(name)) {
      out[name] = like(cell, median_of(all));
    }
  }
  for (const auto& [name, cell] : rows.front().members()) {
    if (!name.ends_with(kSamples)) continue;
    const TimedSamples samples = joined(rows, name);
    const std::string part = name.substr(0, name.size() - kSamples.size());
    for (const Field<TimedSamples>& field : sample_columns()) {
      const std::string column = part + field.column.name;
      if (out.find(column) != nullptr) out[column] = field.get(samples);
    }
    out[counts_column(name)] = counts_of(samples);
    if (part.empty()) add_speed(out, samples.summary.median);
  }
  return out;
}

}  // namespace tracestep

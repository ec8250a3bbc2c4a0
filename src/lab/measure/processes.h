// Samples that know the process that took them, or the visit of a round (rounds.h). Each has its
// own addresses, threads and share of the machine, so what two of them differ by is a noise of its
// own, which more samples of one do not average out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"

namespace tracestep {

// Samples in a list for each process.
using ProcessSamples = std::vector<std::vector<double>>;

// `samples` cut into lists of these lengths; all of one process when there are no counts. Empty
// when the counts are not positive or do not add up to the samples.
ProcessSamples by_process(std::span<const double> samples, std::span<const double> counts);
// The median of each process.
std::vector<double> process_medians(const ProcessSamples& processes);

// The column with the counts of a column of samples: "samples_ms" has "process_samples",
// "forward_samples_ms" has "forward_process_samples".
std::string counts_column(std::string_view samples_column);
// The column with the counts of visits in rounds, all of one process: "visit_samples". A comparison
// must not take visits for processes, which differ by more.
std::string visits_column(std::string_view samples_column);
struct TimedSamples;
Column visits_field(std::string_view samples_column);
Json visit_counts(const TimedSamples& samples);  // null: all are of one visit
// The part that a column of samples times: "forward" of "forward_samples_ms"; empty: the whole row.
std::string_view measure_of(std::string_view samples_column);

// The timed steps of a row of `bench`, in the order of their processes, with their statistics.
struct TimedSamples {
  std::vector<double> ms, counts;  // counts: of each process or visit; empty: all are of one
  bool are_visits = false;
  std::vector<double> medians;  // of the processes
  Summary summary;
  // The interval of the median; with several processes, of the median of their medians.
  Interval interval;

  explicit TimedSamples(std::vector<double> samples_ms, std::vector<double> of_each = {},
                        bool are_of_visits = false);
  // The values that the interval is computed from.
  const std::vector<double>& spread() const { return medians.size() > 1 ? medians : ms; }
  bool has_interval() const { return interval.coverage >= 0.95; }
};
Fields<TimedSamples> sample_columns();
// "interval_low_ms" and "interval_high_ms", from which charts draw how sure a median is; for
// programs alone.
Fields<TimedSamples> interval_fields();

// The medians of both in the rounds that visited both, three at least, pair by pair; else nothing.
// A cell that is visited no more is left out of later rounds, so pairs are those of the first ones.
// Processes are pairs where there are as many on both sides.
struct PairedMedians {
  std::vector<double> a, b;
};
std::optional<PairedMedians> paired_medians(const TimedSamples& a, const TimedSamples& b);

// Rows of one cell, each an object as in "rows" of a result, as one row: samples one after the
// other with the counts of their processes and statistics of all of them, other figures that rest
// on times and bytes outside the allocator as medians, faults added up, the highest roof, the state
// of the machine before the first and after the last. Everything else is the first row's. A row
// that is not ok is returned as it is.
Json merged_row(std::span<const Json> rows, std::span<const Column> columns);

}  // namespace tracestep

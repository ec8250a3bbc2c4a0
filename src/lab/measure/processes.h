// Samples grouped by the process that took them, or by the visit of a round (rounds.h). Each
// process has its own addresses, threads and share of the machine, so processes differ by a noise
// that more samples of one process do not average out.
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

// The samples of several processes, in a list for each.
using ProcessSamples = std::vector<std::vector<double>>;

// Cuts `samples` into a list for each process, with as many samples as `counts` says; one process
// if there are no counts. Empty when counts are not positive or do not add up to the samples.
ProcessSamples by_process(std::span<const double> samples, std::span<const double> counts);
// Returns the median of each process.
std::vector<double> process_medians(const ProcessSamples& processes);

// Names the column with the counts of a column of samples: "samples_ms" has "process_samples",
// "forward_samples_ms" has "forward_process_samples".
std::string counts_column(std::string_view samples_column);
// Names the column that says how many samples each visit of a round took, all in one process:
// "visit_samples". A comparison must not treat visits as processes, which differ by more.
std::string visits_column(std::string_view samples_column);
struct TimedSamples;
Column visits_field(std::string_view samples_column);
// Returns the counts of the visits as a cell; null if all samples are of one visit.
Json visit_counts(const TimedSamples& samples);
// Names the part that a column of samples times: "forward" of "forward_samples_ms"; empty: all.
std::string_view measure_of(std::string_view samples_column);

// The timed steps of a row of `bench`, in the order of their processes, with their statistics.
struct TimedSamples {
  // Samples in ms, and how many of them each process or visit took; empty counts: all are of one.
  std::vector<double> ms, counts;
  bool are_visits = false;
  std::vector<double> medians;  // The median of each process.
  Summary summary;
  // The interval of the median; with several processes, of the median of their medians.
  Interval interval;

  explicit TimedSamples(std::vector<double> samples_ms, std::vector<double> of_each = {},
                        bool are_of_visits = false);
  // Returns the values whose median `interval` is for: the medians of the processes, or samples.
  const std::vector<double>& spread() const { return medians.size() > 1 ? medians : ms; }
  bool has_interval() const { return interval.coverage >= 0.95; }
};
Fields<TimedSamples> sample_columns();
// Returns the columns "interval_low_ms" and "interval_high_ms", which only programs see: charts
// draw the interval of a median from them.
Fields<TimedSamples> interval_fields();

// The medians of two cells in the rounds that visited both, as pairs; empty if there are fewer than
// three such rounds. A cell may drop out of later rounds, so the pairs are those of the first
// rounds. Processes form pairs if both sides have equally many.
struct PairedMedians {
  std::vector<double> a, b;
};
std::optional<PairedMedians> paired_medians(const TimedSamples& a, const TimedSamples& b);

// Merges rows of one cell, each an object as in "rows" of a result, into one: samples one after the
// other with the counts of their processes and statistics of all of them, other figures that rest
// on times and bytes outside the allocator as medians, faults added up, the highest roof, the
// machine's state before the first and after the last. All else is the first row's. Returns a row
// that is not ok as it is.
Json merged_row(std::span<const Json> rows, std::span<const Column> columns);

}  // namespace tracestep

// The checks of a row's samples: how many there are, whether the first ones differ, and whether the
// first and the second half come from a machine in the same state.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/measure/excursion.h"
#include "lab/measure/processes.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/measure/validity_parts.h"

namespace tracestep {
namespace {

// Returns the first sample divided by the median of the others; 0: unknown.
double first_over_rest(const std::vector<double>& samples) {
  if (samples.size() < 3) return 0;
  const double rest = median_of(std::span(samples).subspan(1));
  return rest > 0 ? samples[0] / rest : 0;
}

// Returns how many processes, or visits of rounds, took the row's samples; at least 1.
std::size_t visits_of(const ResultRow& row) {
  return std::max<std::size_t>(counts_in(row).size(), 1);
}

// Reports neighbouring samples that were clearly longer than all others. A drift has its own
// verdict, and samples of several processes need not be of one machine.
std::optional<Verdict> held_up_meanwhile(const ResultRow& row, std::span<const double> samples) {
  constexpr double kSignificance = 0.01, kShift = 0.02;
  if (drifting(row)) return {};
  const Excursion found = clearest_excursion(samples);
  if (found.ratio < 1 + kShift || found.p >= kSignificance) return {};
  return Verdict{
      "unsteady", Severity::kDoubt,
      fmt::format(
          "{} samples one after the other, from sample {} on, took {:.1f} % longer than the "
          "others (p = {:.2g}): clocks, heat or other work changed meanwhile",
          found.count, found.begin + 1, 100 * (found.ratio - 1), found.p)};
}

}  // namespace

std::vector<double> counts_in(const ResultRow& row) {
  const std::vector<double> of_processes = row.numbers("process_samples");
  return of_processes.empty() ? row.numbers("visit_samples") : of_processes;
}

std::optional<Verdict> too_few_samples(const ResultRow& row) {
  constexpr std::size_t kFewest = 6;        // the first count whose range covers the median at 95 %
  constexpr std::size_t kFewestVisits = 3;  // whose range is taken
  const std::vector<double> samples = row.samples_ms();
  if (samples.empty() || samples.size() >= kFewest || !computes(row)) return {};
  if (visits_of(row) >= kFewestVisits) return {};
  return Verdict{"too_few_samples", Severity::kDoubt,
                 fmt::format("{} samples hold the median with {:.0f} % at best; 95 % need {}",
                             samples.size(), 100 * median_interval(samples).coverage, kFewest)};
}

std::optional<Verdict> no_warmup(const ResultRow& row) {
  const std::vector<double> samples = row.samples_ms();
  if (samples.empty() || !row.warmup_ms().empty() || !computes(row)) return {};
  const double factor = first_over_rest(samples);
  return Verdict{"no_warmup", Severity::kDoubt,
                 factor > 0 ? fmt::format("without warm-up the first step is a sample: {:.2f} "
                                          "times the median of the others",
                                          factor)
                            : "without warm-up the first step is a sample"};
}

std::optional<Verdict> warmup_too_short(const ResultRow& row) {
  constexpr double kStandsOut = 1.25;
  const std::vector<double> samples = row.samples_ms();
  const std::vector<double> warmup = row.warmup_ms();
  if (warmup.empty() || samples.size() < 4 || !computes(row)) return {};
  const double factor = first_over_rest(samples);
  const double longest = *std::max_element(samples.begin() + 1, samples.end());
  if (factor < kStandsOut || samples[0] <= longest) return {};
  return Verdict{"warmup_too_short", Severity::kDoubt,
                 fmt::format("after {} warm-up steps the first sample is still {:.2f} times the "
                             "median of the others and the longest of all",
                             warmup.size(), factor)};
}

std::optional<Verdict> unsteady(const ResultRow& row) {
  constexpr double kNoisePercent = 5.0;
  constexpr double kTail = 1.25;
  const std::vector<double> samples = row.samples_ms();
  if (!computes(row)) return {};
  if (visits_of(row) > 1) {
    const TimedSamples timed(samples, counts_in(row));
    const double wide = 50 * (timed.interval.high - timed.interval.low) / timed.summary.median;
    if (wide <= kNoisePercent) return {};
    return Verdict{"unsteady", Severity::kDoubt,
                   fmt::format("the medians of {} visits lie ±{:.1f} % apart; measure longer or on "
                               "a quieter machine",
                               visits_of(row), wide)};
  }
  const double noise = noise_percent_of(samples), median = median_of(samples);
  const double tail = quantile_of(samples, 0.95) / median;
  if (noise > kNoisePercent) {
    return Verdict{"unsteady", Severity::kDoubt,
                   fmt::format("the 95 % interval of the median is ±{:.1f} % wide; measure longer "
                               "or on a quieter machine",
                               noise)};
  }
  if (samples.size() >= 3 && tail > kTail) {
    return Verdict{"unsteady", Severity::kDoubt,
                   fmt::format("the 95th percentile is {:.2f} times the median", tail)};
  }
  return held_up_meanwhile(row, samples);
}

// Reports a shift between the halves that chance explains in under one of a hundred rows.
std::optional<Verdict> drifting(const ResultRow& row) {
  constexpr double kSignificance = 0.01, kShift = 0.02;
  const std::vector<double> samples = row.samples_ms();
  // Visits lie far apart in time: unsteady() looks at what they differ by.
  if (samples.size() < 10 || visits_of(row) > 1 || !computes(row)) return {};
  const std::span<const double> all(samples);
  const auto first = all.first(all.size() / 2), second = all.last(all.size() / 2);
  const double shift = median_of(second) / median_of(first) - 1;
  const double p = mann_whitney_p(first, second);
  if (std::abs(shift) < kShift || p >= kSignificance) return {};
  return Verdict{"drifting", Severity::kDoubt,
                 fmt::format("the second half of the samples is {:+.1f} % off the first (p = "
                             "{:.2g}): clocks, heat or other work changed meanwhile",
                             100 * shift, p)};
}

std::optional<Verdict> criterion_not_met(const ResultRow& row) {
  const std::string ended = row.text("stopped_by");
  if (ended != kMaxSteps && ended != kMaxSeconds) return {};
  const std::vector<double> samples = row.samples_ms();
  const double noise = noise_percent_of(samples);
  const std::string reached =
      std::isnan(noise) ? "so few steps show no noise" : fmt::format("±{:.2f} %", noise);
  return Verdict{"criterion_not_met", Severity::kDoubt,
                 fmt::format("the limit of noise was not met: {} when {} ended it after {} steps",
                             reached, ended, samples.size())};
}

}  // namespace tracestep

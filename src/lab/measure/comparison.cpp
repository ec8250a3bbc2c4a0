#include "lab/measure/comparison.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kSampleConfidence = 0.95;

// Sets the verdict from the interval; `agrees`: whether the test finds a difference, too.
void decide(Comparison& out, double margin, bool agrees) {
  out.is_apart = (out.low > 1 || out.high < 1) && agrees;
  if (out.low >= 1 - margin && out.high <= 1 + margin) {
    out.change = Change::kSame;
  } else if (out.is_apart) {
    out.change = out.low > 1 ? Change::kSlower : Change::kFaster;
  }
}

// The ratios of the medians of B's processes to those of A's, pair by pair, and their logarithms.
struct Pairs {
  std::vector<double> ratios, logs;

  Pairs(const ProcessSamples& a, const ProcessSamples& b)
      : Pairs(process_medians(a), process_medians(b)) {}
  Pairs(const std::vector<double>& of_a, const std::vector<double>& of_b) {
    TRACESTEP_CHECK(of_a.size() == of_b.size(), "pairs of {} and {} processes", of_a.size(),
                    of_b.size());
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      ratios.push_back(of_b[i] / of_a[i]);
      logs.push_back(std::log(ratios.back()));
    }
  }
};

}  // namespace

std::string_view words_of(const Comparison& comparison) {
  return std::isnan(comparison.low) ? "too few samples" : name_of(comparison.change);
}

std::string_view fine_words_of(const Comparison& comparison) {
  const bool is_slight = comparison.change == Change::kSame && comparison.is_apart;
  if (!is_slight) return words_of(comparison);
  return is_slower(comparison) ? "slightly slower" : "slightly faster";
}

bool is_slower(const Comparison& c) {
  return c.is_apart && c.low > 1;
}

Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin) {
  const Interval interval = ratio_interval(a, b, kSampleConfidence);
  Comparison out{.ratio = median_of(b) / median_of(a),
                 .low = interval.low,
                 .high = interval.high,
                 .p = mann_whitney_p(a, b)};
  if (interval.coverage > 0) decide(out, margin, out.p < 1 - kSampleConfidence);
  return out;
}

namespace {

Comparison compare_visits(const Pairs& pairs) {
  const Interval interval = median_interval(pairs.ratios);
  Comparison out{.ratio = median_of(pairs.ratios),
                 .low = interval.low,
                 .high = interval.high,
                 .p = wilcoxon_p(pairs.logs)};
  decide(out, kVisitMargin, true);
  return out;
}

}  // namespace

Comparison compare_visits(const ProcessSamples& a, const ProcessSamples& b) {
  return compare_visits(Pairs(a, b));
}

Comparison compare_cells(const TimedSamples& a, const TimedSamples& b, double margin) {
  const auto pairs = paired_medians(a, b);
  if (!pairs) return compare_samples(a.ms, b.ms, margin);
  return compare_visits(Pairs(pairs->a, pairs->b));
}

bool can_tell(std::size_t a, std::size_t b) {
  // The two extreme orders among all, (a + b choose a).
  double orders = 1;
  for (std::size_t i = 1; i <= std::min(a, b); ++i) {
    orders *= static_cast<double>(std::max(a, b) + i) / static_cast<double>(i);
  }
  return 2 / orders < 1 - kProcessConfidence;
}

Comparison compare_processes(const ProcessSamples& a, const ProcessSamples& b, double margin,
                             const std::optional<ProcessNoise>& noise) {
  const std::vector<double> of_a = process_medians(a), of_b = process_medians(b);
  Comparison out{
      .ratio = median_of(of_b) / median_of(of_a), .low = kUnknown, .high = kUnknown, .p = kUnknown};
  const bool are_enough = can_tell(a.size(), b.size());
  if (!are_enough && !noise) return out;
  const Interval interval = process_ratio_interval(
      a, b, kProcessConfidence, are_enough ? std::optional<ProcessNoise>() : noise);
  out.low = interval.low;
  out.high = interval.high;
  if (are_enough) out.p = mann_whitney_p(of_a, of_b);
  if (interval.coverage > 0) decide(out, margin, !are_enough || out.p < 1 - kProcessConfidence);
  return out;
}

bool can_tell_pairs(std::size_t pairs) {
  return 2 * std::pow(0.5, static_cast<double>(pairs)) < 1 - kProcessConfidence;
}

Comparison compare_pairs(const ProcessSamples& a, const ProcessSamples& b, double margin) {
  const Pairs pairs(a, b);
  Comparison out{
      .ratio = median_of(pairs.ratios), .low = kUnknown, .high = kUnknown, .p = kUnknown};
  if (!can_tell_pairs(a.size())) return out;
  const Interval interval = pair_ratio_interval(a, b, kProcessConfidence);
  out.low = interval.low;
  out.high = interval.high;
  out.p = wilcoxon_p(pairs.logs);
  if (interval.coverage > 0) decide(out, margin, out.p < 1 - kProcessConfidence);
  return out;
}

std::optional<ProcessNoise> pooled_noise(std::span<const ProcessSamples> cells) {
  constexpr int kFewestDegrees = 5;
  double squares = 0;
  int degrees = 0;
  for (const ProcessSamples& cell : cells) {
    std::vector<double> logs;
    for (double median : process_medians(cell)) {
      if (median > 0) logs.push_back(std::log(median));
    }
    if (logs.size() < 2) continue;
    const double deviation = sample_std_of(logs);
    const int free = static_cast<int>(logs.size()) - 1;
    squares += deviation * deviation * free;
    degrees += free;
  }
  if (degrees < kFewestDegrees) return {};
  return ProcessNoise{std::sqrt(squares / degrees), degrees};
}

}  // namespace tracestep

// Statistics of timing samples. Timings are skewed and have outliers, so medians are compared; mean
// and deviation are given for comparison with published tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tracestep {

// Returns the mean. All statistics here are NaN (null) for an empty list; samples may be unsorted.
double mean_of(std::span<const double> samples);
// Returns the standard deviation with divisor n - 1; NaN for a single sample, which has no spread.
double sample_std_of(std::span<const double> samples);
// Returns the standard deviation with divisor n, for comparison with tables that use it.
double population_std_of(std::span<const double> samples);
double median_of(std::span<const double> samples);
double min_of(std::span<const double> samples);
double max_of(std::span<const double> samples);
// Returns the value below which the fraction `p` in [0, 1] lies, interpolated linearly between
// order statistics at position p (n - 1) (type 7 of Hyndman and Fan, 1996, as NumPy and R do).
double quantile_of(std::span<const double> samples, double p);

struct Summary {
  std::int64_t count = 0;
  double mean, sample_std, median, min, max, p95;
};
Summary summarize(std::span<const double> samples);

struct Interval {
  double low, high;
  // The probability that the interval holds the true median. With fewer than six samples it is
  // below the 95 % that were asked for.
  double coverage;
};

// Returns the narrowest symmetric pair of order statistics that covers the median with at least
// probability `confidence`. Makes no assumption on the distribution.
Interval median_interval(std::span<const double> samples, double confidence = 0.95);

// Returns the two-sided p-value of the Mann-Whitney U test: how likely a difference in order as
// large as this is if both lists come from one distribution. Exact for short lists without ties,
// else the normal approximation with tie and continuity corrections. 1 when a list is empty.
// Source: Mann and Whitney, "On a test of whether one of two random variables is stochastically
// larger than the other", 1947.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);

// Returns the two-sided p-value of Wilcoxon's signed-rank test: how likely the differences of pairs
// lie as far to one side as these if each might as well have had the other sign. Exact, with ties
// too, for up to 200 differences that are not zero, else the normal approximation. 1 when all are
// zero. Source: Wilcoxon, "Individual comparisons by ranking methods", 1945.
double wilcoxon_p(std::span<const double> differences);

}  // namespace tracestep

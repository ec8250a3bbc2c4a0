// A confidence interval for the ratio of two medians, by resampling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "lab/measure/processes.h"
#include "lab/measure/statistics.h"

namespace tracestep {

// Medians of bootstrap resamples: lists drawn with replacement from one list, of its length. Only
// the ranks of the middle samples are drawn, not the whole list: of n uniform numbers the k-th
// smallest has a Beta(k, n + 1 - k) distribution, so a median costs the same for any n, and its
// distribution is exactly that of drawing all n. Source: David and Nagaraja, "Order Statistics",
// 2003, chapter 2.
class MedianResampler {
 public:
  // Resamples `samples`, of which there must be at least one.
  MedianResampler(std::span<const double> samples, const CounterRng& rng);
  double next();

 private:
  double gamma(double shape);
  double sample_at(double uniform) const;

  std::vector<double> sorted_;
  CounterRng rng_;
  std::uint64_t index_ = 0;  // draws so far
};

// Returns an interval for median(b) / median(a): the middle `confidence` of `resamples` pairs of
// resampled lists. The same lists, seed and count give the same interval on every machine. NaN,
// with coverage 0, when a list has fewer than six samples (too few to show the variation) or a
// median is not positive. Source: Efron, "Bootstrap methods: another look at the jackknife", 1979
// (percentile method).
Interval ratio_interval(std::span<const double> a, std::span<const double> b,
                        double confidence = 0.95, std::uint64_t seed = 0, int resamples = 4000);

// The noise between processes of one build: how much their medians differ, known from measurements
// other than the samples that are compared.
struct ProcessNoise {
  // The standard deviation of the logarithm of a process's median: 0.01 is 1 %.
  double log_std = 0;
  // The degrees of freedom of that estimate, at least two; 0: the deviation is exact.
  int degrees = 0;
};

// Returns an interval for the ratio b / a of the medians of the processes' medians. Each resample
// draws processes with replacement, as many as there are, and within each its samples: the two
// levels at which a repetition would differ. With `noise` the processes are kept, and each median
// is multiplied by a factor drawn from that noise instead, so that one process is enough. NaN, with
// coverage 0, when a side has no samples, a process without any, or a median that is not positive.
// Source: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8
// (hierarchical data); Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013, on the
// levels.
Interval process_ratio_interval(const ProcessSamples& a, const ProcessSamples& b, double confidence,
                                const std::optional<ProcessNoise>& noise = {},
                                std::uint64_t seed = 0, int resamples = 4000);

// Returns an interval for the median of the ratios b / a of processes that ran in pairs: `a[i]` and
// `b[i]` are a pair. Each resample draws pairs with replacement and, in both processes of each
// pair, samples; what slows both of a pair alike cancels. Both sides have equally many processes.
Interval pair_ratio_interval(const ProcessSamples& a, const ProcessSamples& b, double confidence,
                             std::uint64_t seed = 0, int resamples = 4000);

}  // namespace tracestep

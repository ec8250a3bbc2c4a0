// A confidence interval for the ratio of two medians, by resampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "lab/measure/statistics.h"

namespace tracestep {

// Medians of bootstrap resamples: lists drawn with replacement from one list, of its length. Only
// the ranks of the middle samples are drawn, not the whole list: of n uniform numbers the k-th
// smallest has a Beta(k, n + 1 - k) distribution, so a median costs the same for any n, and its
// distribution is exactly that of drawing all n. Source: David and Nagaraja, "Order Statistics",
// 2003, chapter 2.
class MedianResampler {
 public:
  // `samples`: at least one.
  MedianResampler(std::span<const double> samples, const CounterRng& rng);
  double next();

 private:
  double gamma(double shape);
  double sample_at(double uniform) const;

  std::vector<double> sorted_;
  CounterRng rng_;
  std::uint64_t index_ = 0;  // draws so far
};

// median(b) / median(a) of resampled lists, `resamples` times: the middle `confidence` of them. The
// same lists, seed and count give the same interval on every machine. NaN, with coverage 0, when a
// list has fewer than six samples (too few for resampling to show the variation) or a median is not
// positive. Source: Efron, "Bootstrap methods: another look at the jackknife", 1979 (percentile
// method).
Interval ratio_interval(std::span<const double> a, std::span<const double> b,
                        double confidence = 0.95, std::uint64_t seed = 0, int resamples = 4000);

}  // namespace tracestep

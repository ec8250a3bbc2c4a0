#include "lab/measure/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tracestep {
namespace {

constexpr std::size_t kFewest = 6;

}  // namespace

MedianResampler::MedianResampler(std::span<const double> samples, const CounterRng& rng)
    : sorted_(samples.begin(), samples.end()), rng_(rng) {
  std::ranges::sort(sorted_);
}

// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; for
// shape >= 1.
double MedianResampler::gamma(double shape) {
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double z = rng_.normal(index_++);
    const double root = 1.0 + c * z;
    const double u = 1.0 - rng_.uniform(index_++);  // in (0, 1]
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * z * z + d - d * v + d * std::log(v)) return d * v;
  }
}

double MedianResampler::sample_at(double uniform) const {
  const auto n = sorted_.size();
  return sorted_[std::min(static_cast<std::size_t>(uniform * static_cast<double>(n)), n - 1)];
}

double MedianResampler::next() {
  const std::size_t n = sorted_.size(), above = n / 2;  // how many lie above the (lower) middle
  const double of_below = gamma(static_cast<double>(n - above));
  const double of_above = gamma(static_cast<double>(above + 1));
  const double lower = of_below / (of_below + of_above);
  if (n % 2 == 1) return sample_at(lower);
  // The upper middle one is the smallest of `above` uniform numbers between the lower one and 1.
  const double rest = std::pow(1.0 - rng_.uniform(index_++), 1.0 / static_cast<double>(above));
  return (sample_at(lower) + sample_at(1.0 - (1.0 - lower) * rest)) / 2;
}

Interval ratio_interval(std::span<const double> a, std::span<const double> b, double confidence,
                        std::uint64_t seed, int resamples) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (a.size() < kFewest || b.size() < kFewest || !(median_of(a) > 0) || !(median_of(b) > 0)) {
    return {kNan, kNan, 0};
  }
  MedianResampler of_a(a, CounterRng(seed, "bootstrap.a"));
  MedianResampler of_b(b, CounterRng(seed, "bootstrap.b"));
  std::vector<double> ratios;
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) ratios.push_back(of_b.next() / of_a.next());
  const double tail = (1 - confidence) / 2;
  return {quantile_of(ratios, tail), quantile_of(ratios, 1 - tail), confidence};
}

}  // namespace tracestep

#include "lab/measure/bootstrap.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tracestep {
namespace {

constexpr std::size_t kFewest = 6;

// The median of one resample; `index` counts the draws of the stream.
double resampled_median(std::span<const double> samples, const CounterRng& rng,
                        std::uint64_t& index, std::vector<double>& scratch) {
  const std::size_t n = samples.size();
  scratch.resize(n);
  for (double& x : scratch) x = samples[rng.below(index++, n)];
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  if (n % 2 == 1) return *middle;
  return (*std::max_element(scratch.begin(), middle) + *middle) / 2;
}

}  // namespace

Interval ratio_interval(std::span<const double> a, std::span<const double> b, double confidence,
                        std::uint64_t seed, int resamples) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (a.size() < kFewest || b.size() < kFewest || !(median_of(a) > 0) || !(median_of(b) > 0)) {
    return {kNan, kNan, 0};
  }
  const CounterRng rng_a(seed, "bootstrap.a"), rng_b(seed, "bootstrap.b");
  std::uint64_t index_a = 0, index_b = 0;
  std::vector<double> scratch, ratios;
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) {
    const double of_b = resampled_median(b, rng_b, index_b, scratch);
    ratios.push_back(of_b / resampled_median(a, rng_a, index_a, scratch));
  }
  const double tail = (1 - confidence) / 2;
  return {quantile_of(ratios, tail), quantile_of(ratios, 1 - tail), confidence};
}

}  // namespace tracestep

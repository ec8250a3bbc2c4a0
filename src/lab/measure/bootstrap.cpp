#include "lab/measure/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kFewest = 6;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Draws a number from the gamma distribution of `shape` >= 1 and advances `index`, the next draw's.
// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double gamma_of(const CounterRng& rng, std::uint64_t& index, double shape) {
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double z = rng.normal(index++);
    const double root = 1.0 + c * z;
    const double u = 1.0 - rng.uniform(index++);  // in (0, 1]
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * z * z + d - d * v + d * std::log(v)) return d * v;
  }
}

// Draws bootstrap resamples of one side of a comparison: each is a median of process medians.
class SideResampler {
 public:
  SideResampler(const ProcessSamples& processes, std::uint64_t seed, const char* stream)
      : rng_(seed, stream) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      within_.emplace_back(processes[i], CounterRng(seed + i + 1, stream));
    }
  }

  double next() {
    medians_.clear();
    for (std::size_t i = 0; i < within_.size(); ++i) {
      const double place = rng_.uniform(index_++) * static_cast<double>(within_.size());
      medians_.push_back(
          within_[std::min(static_cast<std::size_t>(place), within_.size() - 1)].next());
    }
    return median_of(medians_);
  }

  double next_with(double log_std) {
    medians_.clear();
    for (MedianResampler& process : within_) {
      medians_.push_back(process.next() * std::exp(log_std * rng_.normal(index_++)));
    }
    return median_of(medians_);
  }

 private:
  CounterRng rng_;
  std::uint64_t index_ = 0;
  std::vector<MedianResampler> within_;
  std::vector<double> medians_;
};

bool has_positive_medians(const ProcessSamples& processes) {
  return !processes.empty() && std::ranges::all_of(processes, [](const auto& samples) {
    return !samples.empty() && median_of(samples) > 0;
  });
}

Interval middle_of(std::vector<double> ratios, double confidence) {
  const double tail = (1 - confidence) / 2;
  return {quantile_of(ratios, tail), quantile_of(ratios, 1 - tail), confidence};
}

}  // namespace

MedianResampler::MedianResampler(std::span<const double> samples, const CounterRng& rng)
    : sorted_(samples.begin(), samples.end()), rng_(rng) {
  std::ranges::sort(sorted_);
}

double MedianResampler::gamma(double shape) {
  return gamma_of(rng_, index_, shape);
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
  if (a.size() < kFewest || b.size() < kFewest || !(median_of(a) > 0) || !(median_of(b) > 0)) {
    return {kNoNumber, kNoNumber, 0};
  }
  MedianResampler of_a(a, CounterRng(seed, "bootstrap.a"));
  MedianResampler of_b(b, CounterRng(seed, "bootstrap.b"));
  std::vector<double> ratios;
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) ratios.push_back(of_b.next() / of_a.next());
  return middle_of(std::move(ratios), confidence);
}

Interval process_ratio_interval(const ProcessSamples& a, const ProcessSamples& b, double confidence,
                                const std::optional<ProcessNoise>& noise, std::uint64_t seed,
                                int resamples) {
  if (!has_positive_medians(a) || !has_positive_medians(b)) return {kNoNumber, kNoNumber, 0};
  SideResampler of_a(a, seed, "processes.a"), of_b(b, seed, "processes.b");
  const CounterRng scale(seed, "processes.noise");
  std::uint64_t index = 0;
  std::vector<double> ratios;
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) {
    if (!noise) {
      ratios.push_back(of_b.next() / of_a.next());
      continue;
    }
    // An estimated deviation is uncertain itself: s²·f/χ² with f degrees of freedom.
    double log_std = noise->log_std;
    if (noise->degrees > 0) {
      const double half = noise->degrees / 2.0;
      log_std *= std::sqrt(half / gamma_of(scale, index, half));
    }
    ratios.push_back(of_b.next_with(log_std) / of_a.next_with(log_std));
  }
  return middle_of(std::move(ratios), confidence);
}

Interval pair_ratio_interval(const ProcessSamples& a, const ProcessSamples& b, double confidence,
                             std::uint64_t seed, int resamples) {
  TRACESTEP_CHECK(a.size() == b.size(), "pairs of {} and {} processes", a.size(), b.size());
  if (!has_positive_medians(a) || !has_positive_medians(b)) return {kNoNumber, kNoNumber, 0};
  std::vector<MedianResampler> of_a, of_b;
  for (std::size_t i = 0; i < a.size(); ++i) {
    of_a.emplace_back(a[i], CounterRng(seed + i, "pairs.a"));
    of_b.emplace_back(b[i], CounterRng(seed + i, "pairs.b"));
  }
  const CounterRng places(seed, "pairs");
  std::uint64_t index = 0;
  std::vector<double> ratios, of_pairs(a.size());
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) {
    for (double& ratio : of_pairs) {
      const std::size_t pair = places.below(index++, a.size());
      ratio = of_b[pair].next() / of_a[pair].next();
    }
    ratios.push_back(median_of(of_pairs));
  }
  return middle_of(std::move(ratios), confidence);
}

}  // namespace tracestep

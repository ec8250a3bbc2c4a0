#include "lab/measure/sampling.h"

#include <limits>

#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

constexpr double kConfidence = 0.95;

}  // namespace

double noise_percent_of(std::span<const double> samples) {
  const Interval interval = median_interval(samples, kConfidence);
  const double median = median_of(samples);
  if (interval.coverage < kConfidence || !(median > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 100.0 * (interval.high - interval.low) / 2 / median;
}

std::string end_of_sampling(const Protocol& protocol, std::span<const double> samples_ms) {
  const auto count = static_cast<int>(samples_ms.size());
  double total_ms = 0;
  for (double ms : samples_ms) total_ms += ms;
  const bool is_visited = protocol.visit_seconds > 0 && count >= kVisitSamples &&
                          total_ms >= protocol.visit_seconds * 1e3;
  if (is_visited || (protocol.max_noise_percent <= 0 && count >= protocol.steps)) return "steps";
  if (protocol.max_noise_percent <= 0) return "";
  if (count >= protocol.steps && noise_percent_of(samples_ms) <= protocol.max_noise_percent)
    return "noise";
  if (count >= protocol.most_steps()) return std::string(kMaxSteps);
  return total_ms >= protocol.max_seconds * 1e3 ? std::string(kMaxSeconds) : "";
}

}  // namespace tracestep

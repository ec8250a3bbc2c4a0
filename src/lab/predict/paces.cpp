#include "lab/predict/paces.h"

#include <algorithm>
#include <cmath>

namespace tracestep {

void Paces::add(const std::string& kernel, double expected_us, double us) {
  constexpr double kMostLog = 0.3;
  if (expected_us <= 0 || us <= 0) return;
  launches_[kernel].push_back(
      {std::log(expected_us), std::clamp(std::log(us / expected_us), -kMostLog, kMostLog)});
}

double Paces::factor(const std::string& kernel, double expected_us) const {
  constexpr double kWidth = 0.693, kPrior = 0.5;
  const auto found = launches_.find(kernel);
  if (found == launches_.end() || expected_us <= 0) return 1.0;
  double sum = 0, weights = kPrior;
  for (const Launch& launch : found->second) {
    const double distance = (std::log(expected_us) - launch.log_us) / kWidth;
    const double weight = std::exp(-distance * distance / 2);
    sum += weight * launch.log_ratio;
    weights += weight;
  }
  return std::exp(sum / weights);
}

}  // namespace tracestep

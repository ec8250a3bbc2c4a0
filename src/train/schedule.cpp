#include "train/schedule.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"

namespace tracestep {

void Schedule::check() const {
  if (!std::isfinite(static_cast<float>(lr)) || lr < 0) {
    fail_usage("schedule"_field, "the learning rate is {}; a number from 0 to {:.3g} is needed", lr,
               std::numeric_limits<float>::max());
  }
  if (kind == ScheduleKind::kCosine && !(lr_min >= 0 && lr_min <= lr)) {
    fail_usage("schedule"_field, "the lowest learning rate is {}; it must lie between 0 and {}",
               lr_min, lr);
  }
  if (warmup_steps < 0) fail_usage("schedule"_field, "a warm-up of {} steps", warmup_steps);
  if (kind == ScheduleKind::kCosine && warmup_steps > total_steps) {
    fail_usage("schedule"_field,
               "a warm-up of {} steps is longer than the {} of the whole schedule", warmup_steps,
               total_steps);
  }
}

double Schedule::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return lr * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (kind == ScheduleKind::kConstant) return lr;
  if (step >= total_steps) return lr_min;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  return lr_min + 0.5 * (1 + std::cos(std::numbers::pi * progress)) * (lr - lr_min);
}

double step_size(double lr, double beta1, double beta2, std::int64_t t) {
  TRACESTEP_CHECK(t >= 1, "update number {}", t);
  const auto power = static_cast<double>(t);
  return lr * std::sqrt(1 - std::pow(beta2, power)) / (1 - std::pow(beta1, power));
}

}  // namespace tracestep

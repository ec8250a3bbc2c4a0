#include "lab/predict/split_gain.h"

#include <algorithm>

#include "lab/predict/kernel_work.h"
#include "spec/step_program.h"

namespace tracestep {

std::optional<double> split_gain(const RunSpec& run, const DeviceTraits& traits,
                                 const TimeModel& model) {
  const bool has_budget = run.recompute.kind == Recomputation::Kind::kBudget;
  if (run.precision != Precision() || run.parallel.ranks > 1 || has_budget) return std::nullopt;
  RunSpec by_parts = run;
  by_parts.precision.split = true;
  const auto time_of = [&](const RunSpec& r) {
    return model.time_of(r, step_program(r, traits), traits);
  };
  const StepTime with = time_of(by_parts), without = time_of(run);
  const bool is_known = std::ranges::none_of(with.uncalibrated, [](const std::string& kernel) {
    return kernel.find(kByParts) != std::string::npos;
  });
  if (!is_known || with.ms <= 0) return std::nullopt;
  return without.ms / with.ms;
}

}  // namespace tracestep

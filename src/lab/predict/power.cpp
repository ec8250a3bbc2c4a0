#include "lab/predict/power.h"

#include <algorithm>
#include <chrono>

#include "record/recorder.h"
#include "runtime/energy_counter.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// Entries of Efforts that hold figures of a whole step here: its time, and the part of it in which
// kernels run.
constexpr Effort kTime = Effort::kLaunches, kBusy = Effort::kRows;

Efforts with_times(Efforts amounts, double ms, double busy_ms) {
  at(amounts, kTime) = ms;
  at(amounts, kBusy) = std::min(ms, busy_ms);
  return amounts;
}

ProductKind kind_of_products(const Precision& p) {
  return {p.autocast.value_or(p.parameters), p.tf32, p.split, p.float8};
}

}  // namespace

std::optional<double> watts_between(const std::vector<EnergyTick>& ticks) {
  constexpr std::int64_t kLeastNs = 80'000'000;
  if (ticks.size() < 2) return std::nullopt;
  const std::int64_t ns = ticks.back().ns - ticks.front().ns;
  if (ns < kLeastNs) return std::nullopt;
  return (ticks.back().joules - ticks.front().joules) / (static_cast<double>(ns) * 1e-9);
}

PowerMeter::PowerMeter(const Device& device)
    : thread_([this,
               counter = dynamic_cast<const EnergyCounter*>(&device)](const std::stop_token& stop) {
        constexpr std::chrono::milliseconds kPause{1};
        std::optional<double> last = counter != nullptr ? counter->energy_j() : std::nullopt;
        while (last && !stop.stop_requested()) {
          std::this_thread::sleep_for(kPause);
          const std::optional<double> now = counter->energy_j();
          if (now && *now != *last) {
            const std::lock_guard lock(mutex_);
            ticks_.push_back({now_ns(), *now});
          }
          last = now;
        }
      }) {}

std::optional<double> PowerMeter::watts() const {
  const std::lock_guard lock(mutex_);
  return watts_between(ticks_);
}

void add_amounts(KernelClass kind, const Efforts& launch, double count, Efforts& amounts) {
  const bool multiplies = kind == KernelClass::kGemm || kind == KernelClass::kAttention;
  if (multiplies) at(amounts, Effort::kOperations) += count * at(launch, Effort::kOperations);
  at(amounts, Effort::kMemoryBytes) += count * at(launch, Effort::kMemoryBytes);
}

EnergyModel::EnergyModel(const Calibration& calibration) {
  std::map<ProductKind, std::vector<MeasuredWork>> steps;
  for (const CalibratedStep& step : calibration.steps) {
    if (step.watts <= 0 || step.is_held_out) continue;
    MeasuredWork work{.us = step.watts * step.wall_ms * 1e-3};
    for (const CalibratedStep::Launch& launch : step.kernels) {
      add_amounts(launch.kernel_class, launch.work.amounts, static_cast<double>(launch.count),
                  work.amounts);
    }
    work.amounts = with_times(work.amounts, step.wall_ms, step.busy_ms);
    steps[kind_of_products(run_of_key(step.key).precision)].push_back(work);
  }
  for (const auto& [kind, measured] : steps) {
    rates_[kind] = at_pace_of(measured, fit_rates(measured));
  }
}

double EnergyModel::joules(const Precision& precision, double ms, double busy_ms,
                           const Efforts& amounts) const {
  const auto found = rates_.find(kind_of_products(precision));
  return found == rates_.end() ? 0 : found->second.us(with_times(amounts, ms, busy_ms));
}

}  // namespace tracestep

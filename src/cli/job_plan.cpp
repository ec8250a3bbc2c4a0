#include "cli/job_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/devices.h"
#include "lab/memory/run.h"
#include "lab/predict/predict.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

// The factors by which requests exceed predictions: these err, and nodes of a cluster differ.
constexpr double kTimeMargin = 1.5, kMemoryMargin = 1.25;
constexpr int kLeastMinutes = 5;
constexpr double kStartSeconds = 60;  // start, weights, and the ceilings of the device
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
// Host memory of libraries and files; beside a GPU also of the CUDA toolkit and what it allocates.
constexpr std::int64_t kHostBytes = kGiB, kHostBytesBesideGpu = 4 * kGiB;
constexpr int kCpusBesideGpu = 4;

// The prediction for a step: its peak, its host memory, and a time that it will hardly exceed.
struct Predicted {
  std::int64_t peak_bytes = 0, host_bytes = 0;
  double step_ms = 0;
};

Predicted predicted_step(const RunSpec& run, const Predictor* times) {
  const DeviceTraits traits = traits_of(run.place);
  if (times == nullptr) {
    const MemoryRun memory = predict_memory(run, traits);
    return {memory.predicted_peak_bytes, memory.host_bytes, 0.0};
  }
  const Prediction all = predict_run(run, traits, *times);
  return {all.peak_bytes, all.host_bytes, all.time.high_ms};
}

// Predicts a step; one that cannot meet its budget needs nothing, as its row only says so.
Predicted predicted(const RunSpec& run, const Predictor* times) {
  try {
    return predicted_step(run, times);
  } catch (const BudgetNotMet&) {
    return {};
  }
}

}  // namespace

JobPlan plan_of_steps(const RunSpec& run, double steps) {
  return {.place = run.place,
          .processes = std::max(1, run.parallel.ranks),
          .runs = {run},
          .steps = steps};
}

JobNeeds JobNeeds::operator|(const JobNeeds& other) const {
  return {.peak_bytes = std::max(peak_bytes, other.peak_bytes),
          .memory_bytes = std::max(memory_bytes, other.memory_bytes),
          .predicted_seconds = std::max(predicted_seconds, other.predicted_seconds),
          .minutes = std::max(minutes, other.minutes),
          .cpus = std::max(cpus, other.cpus),
          .gpus = std::max(gpus, other.gpus)};
}

JobNeeds needs_of(std::span<const PlannedCell> cells, const Predictor* times) {
  JobNeeds out;
  std::int64_t needed = 0;
  double seconds = 0;
  bool has_time = true;
  for (const PlannedCell& cell : cells) {
    const JobPlan& plan = cell.needs;
    const bool is_gpu = traits_of(plan.place).has_own_memory();
    std::int64_t peak = plan.peak_bytes, on_host = 0;
    for (const RunSpec& run : plan.runs) {
      const Predicted one = predicted(run, times);
      peak = std::max(peak, one.peak_bytes);
      on_host = std::max(on_host, one.host_bytes);
      seconds += plan.steps * one.step_ms * 1e-3;
    }
    // Beyond its limit a row only says that it is out of memory.
    if (plan.place.memory_limit_bytes > 0) peak = std::min(peak, plan.place.memory_limit_bytes);
    out.peak_bytes = std::max(out.peak_bytes, peak);
    out.cpus = std::max(out.cpus, is_gpu ? kCpusBesideGpu : plan.place.threads);
    out.gpus = std::max(out.gpus, is_gpu ? 1 : 0);
    needed = std::max(needed, plan.host_bytes + on_host + (is_gpu ? 0 : peak));
    seconds += plan.seconds;
    has_time &= plan.has_time && (plan.runs.empty() || times != nullptr);
  }
  const bool has_gpu = out.gpus > 0;
  if (has_gpu || needed > 0) {
    out.memory_bytes = (has_gpu ? kHostBytesBesideGpu : kHostBytes) +
                       static_cast<std::int64_t>(static_cast<double>(needed) * kMemoryMargin);
  }
  if (has_time) {
    out.predicted_seconds = seconds;
    const double minutes = (kStartSeconds + seconds * kTimeMargin) / 60;
    out.minutes = std::max(kLeastMinutes, static_cast<int>(std::ceil(minutes)));
  }
  return out;
}

double rough_seconds(std::span<const PlannedCell> cells) {
  constexpr double kFlopsOfCore = 5e10, kFlopsOfGpu = 2e13;
  double out = 0;
  for (const PlannedCell& cell : cells) {
    const JobPlan& plan = cell.needs;
    const double rate = traits_of(plan.place).has_own_memory()
                            ? kFlopsOfGpu
                            : kFlopsOfCore * std::max(1, plan.place.threads);
    for (const RunSpec& run : plan.runs) {
      if (!traits_of(run.place).computes) continue;  // it computes nothing
      const bool has_backward = run.mode == Mode::kForwardBackward || run.mode == Mode::kStep;
      out += plan.steps / rate * (has_backward ? 3 : 1) *
             forward_flops(run.model, static_cast<double>(run.shape.batch * micro_batches_of(run)),
                           static_cast<double>(run.shape.context));
    }
    if (plan.runs.empty()) out += plan.seconds;
  }
  return out;
}

std::string margins_text() {
  return fmt::format(
      "{:g} times the predicted time and {:g} s to start, at least {} min; {:g} times the "
      "predicted bytes, and {} for libraries, {} beside a GPU",
      kTimeMargin, kStartSeconds, kLeastMinutes, kMemoryMargin, format_bytes(kHostBytes),
      format_bytes(kHostBytesBesideGpu));
}

}  // namespace tracestep::cli

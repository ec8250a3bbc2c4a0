#include "lab/predict/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/measure/statistics.h"
#include "lab/predict/between.h"
#include "lab/predict/launch_sum.h"
#include "lab/predict/paces.h"
#include "lab/predict/power.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

using StepPointers = std::vector<const CalibratedStep*>;

bool is_of_products(KernelClass kind) {
  return kind == KernelClass::kGemm || kind == KernelClass::kAttention;
}

// Fits the rates of kernels to their launches. Where these say little, the rates of the kernel's
// class hold, and for a class those of all kernels but products, except for products' operations.
class KernelRates {
 public:
  KernelRates(const StepPointers& steps, bool is_asynchronous) {
    // Launches on a CPU are many and of three rounds, and its products differ in more quantities:
    // usual rates only fill in what they leave open.
    const double prior = is_asynchronous ? 0.5 : 0.02;
    std::vector<MeasuredWork> moving;
    std::map<KernelClass, std::vector<MeasuredWork>> by_class;
    std::map<std::string, std::vector<MeasuredWork>> by_kernel;
    std::map<std::string, KernelClass> class_of;
    for (const CalibratedStep* step : steps) {
      for (const CalibratedStep::Launch& launch : step->kernels) {
        if (!is_of_products(launch.kernel_class)) moving.push_back(launch.work);
        by_class[launch.kernel_class].push_back(launch.work);
        by_kernel[launch.kernel].push_back(launch.work);
        class_of[launch.kernel] = launch.kernel_class;
      }
    }
    const Rates usual = fit_rates(moving, {}, prior);
    Rates of_products = usual;
    at(of_products.us_per_unit, Effort::kOperations) = 0;
    for (const auto& [kind, work] : by_class) {
      classes_[kind] =
          fit_rates(work, is_of_products(kind) ? of_products : at_pace_of(work, usual), prior);
    }
    for (const auto& [name, work] : by_kernel) {
      // Relative errors alone would favour times that are too short.
      kernels_[name] =
          at_pace_of(work, fit_rates(work, at_pace_of(work, classes_[class_of[name]]), prior));
    }
  }

  // Returns the rates of this kernel; nullptr: no launch of the kernel was measured.
  const Rates* of_kernel(const std::string& name) const {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }
  const Rates& of_class(KernelClass kind) const {
    static const Rates kNone;
    const auto found = classes_.find(kind);
    return found == classes_.end() ? kNone : found->second;
  }
  double us(const std::string& kernel, KernelClass kind, const Efforts& amounts) const {
    const Rates* own = of_kernel(kernel);
    return (own != nullptr ? *own : of_class(kind)).us(amounts);
  }

 private:
  std::map<KernelClass, Rates> classes_;
  std::map<std::string, Rates> kernels_;
};

StepPointers fitted_steps(const Calibration& calibration) {
  StepPointers out;
  for (const CalibratedStep& step : calibration.steps) {
    if (!step.is_held_out) out.push_back(&step);
  }
  return out;
}

// Predicts launches on a device that rounds the operands of products (`tf32`), or does not.
class LaunchTimes {
 public:
  LaunchTimes(const Calibration& calibration, bool tf32)
      : products_(tf32 ? std::span<const MeasuredProduct>() : calibration.products,
                  tf32 ? std::span<const MeasuredProduct>() : calibration.sized_products,
                  multiprocessors_of(calibration)),
        rates_(steps_of(calibration, tf32), calibration.is_asynchronous) {
    for (const CalibratedStep* step : steps_of(calibration, tf32)) {
      for (const CalibratedStep::Launch& l : step->kernels) {
        const double expected = rated_us(l.kernel, l.kernel_class, l.work.amounts, l.product);
        paces_.add(l.kernel, expected, l.work.us);
      }
    }
  }

  bool knows(const std::string& kernel, const ProductShape& product) const {
    return rates_.of_kernel(kernel) != nullptr || products_.us(kernel, product).has_value();
  }
  // Returns a launch's microseconds, by fields of a KernelWork or a CalibratedStep::Launch.
  double us(const std::string& kernel, KernelClass kind, const Efforts& amounts,
            const ProductShape& product) const {
    const double rated = rated_us(kernel, kind, amounts, product);
    return rated * paces_.factor(kernel, rated);
  }

 private:
  static StepPointers steps_of(const Calibration& calibration, bool tf32) {
    StepPointers out = fitted_steps(calibration);
    // Kernels of float32 have the same names whether or not products round their operands.
    std::erase_if(out, [&](const CalibratedStep* step) {
      return run_of_key(step->key).precision.tf32 != tf32;
    });
    return out;
  }

  double rated_us(const std::string& kernel, KernelClass kind, const Efforts& amounts,
                  const ProductShape& product) const {
    const std::optional<double> measured = products_.us(kernel, product);
    return measured ? *measured : rates_.us(kernel, kind, amounts);
  }

  ProductTimes products_;
  KernelRates rates_;
  Paces paces_;  // of launches in steps
};

class Calibrated : public TimeModel {
 public:
  explicit Calibrated(const Calibration& calibration)
      : date_utc_(calibration.date_utc),
        caches_(calibration.caches),
        host_bytes_per_us_(calibration.host_bytes_per_us),
        times_(calibration, false),
        rounded_times_(calibration, true),
        energy_(calibration) {
    const StepPointers steps = fitted_steps(calibration);
    for (ExecutorKind executor : kAll<ExecutorKind>) {
      between_[executor] = between_kernels(steps, executor, calibration.is_asynchronous);
    }
    // An arena without a capture: no allocator's work, but the host's launches.
    between_[ExecutorKind::kArena] =
        between_[calibration.is_asynchronous ? ExecutorKind::kEager : ExecutorKind::kCompiled];
    std::vector<double> errors;
    for (const CalibratedStep& step : calibration.steps) {
      if (step.is_held_out) errors.push_back(error_of(step));
    }
    const double least = calibration.is_asynchronous ? kLeastSpread : kLeastSpreadOnCpu;
    spread_ = std::max(least, std::expm1(quantile_of(errors, 0.9)));
  }

  StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                   const std::optional<Link>& link) const override {
    const LaunchTimes& times = times_of(run.precision);
    const Between& between = between_.at(run.executor);
    LaunchSum launches(program, link, between);
    std::set<std::string> uncalibrated;
    double uncalibrated_ms = 0;
    Efforts amounts{};
    for (const KernelWork& w : kernel_work(program, traits, caches_)) {
      if (const std::optional<double> us = launches.collective_us(w.node)) {
        launches.add(w.node, *us);
        continue;
      }
      const bool is_in_parts = !w.parts.empty() && !times.knows(w.kernel, w.product);
      double node_us = 0;
      for (const KernelWork& part : is_in_parts ? std::span(w.parts) : std::span(&w, 1)) {
        const bool is_known = times.knows(part.kernel, part.product);
        const bool has_known_link = part.host_bytes <= 0 || host_bytes_per_us_ > 0;
        if (!is_known) uncalibrated.insert(part.kernel);
        if (!has_known_link) uncalibrated.insert(kHostLink);
        const double us = std::max(
            times.us(part.kernel, part.kernel_class, part.amounts, part.product), link_us(part));
        if (!is_known || !has_known_link) uncalibrated_ms += us * 1e-3;
        add_amounts(part.kernel_class, part.amounts, 1, amounts);
        node_us += us;
      }
      launches.add(w.node, node_us);
    }
    StepTime out = launches.sum();
    out.uncalibrated = std::move(uncalibrated);
    out.uncalibrated_ms = uncalibrated_ms;
    // Times with a host as usual, a quick and a slow one.
    std::array<double, 3> us = launches.ended_us();
    if (has_lanes(program)) {
      const double device_us = (out.kernels_ms - out.beside_ms) * 1e3;
      us = step_us(device_us, out.launches, launches.issue_us(), between);
    }
    out.ms = us[0] * 1e-3;
    out.joules = energy_.joules(run.precision, out.ms, out.kernels_ms - out.beside_ms, amounts);
    const double unknown = out.kernels_ms > 0 ? out.uncalibrated_ms / out.kernels_ms : 0.0;
    const double spread = (1 + spread_) * (1 + unknown) - 1;
    out.low_ms = us[1] * 1e-3 / (1 + spread);
    out.high_ms = us[2] * 1e-3 * (1 + spread);
    return out;
  }

  std::string source() const override {
    return fmt::format("calibrated on this device, {}", date_utc_);
  }
  std::string date_utc() const override { return date_utc_; }
  double spread() const override { return spread_; }

 private:
  static constexpr const char* kHostLink = "those that read the host's memory";
  static constexpr double kLeastSpread = 0.03;  // two measurements of one step differ by as much
  // The least spread: steps of new sizes are as far off (bench/results/prediction-epyc-2-cores.md).
  static constexpr double kLeastSpreadOnCpu = 0.07;

  double link_us(const KernelWork& w) const {
    return host_bytes_per_us_ > 0 ? w.host_bytes / host_bytes_per_us_ : 0.0;
  }

  const LaunchTimes& times_of(const Precision& precision) const {
    return precision.tf32 ? rounded_times_ : times_;
  }

  // Returns how far, as a logarithm, the step's time lies outside those with quick to slow hosts.
  double error_of(const CalibratedStep& step) const {
    double us = 0;
    const LaunchTimes& times = times_of(run_of_key(step.key).precision);
    for (const CalibratedStep::Launch& launch : step.kernels) {
      us += static_cast<double>(launch.count) *
            times.us(launch.kernel, launch.kernel_class, launch.work.amounts, launch.product);
    }
    const Between& between = between_.at(step.executor);
    const auto [usual, least, most] = step_us(us, step.launches, between.issue_us(step), between);
    const double wall_us = step.wall_ms * 1e3;
    return std::abs(std::log(wall_us / std::clamp(wall_us, least, most)));
  }

  // Returns the step's time with a usual, a quick and a slow host, whatever the order of launches.
  static std::array<double, 3> step_us(double kernels_us, std::int64_t launches, double issue_us,
                                       const Between& between) {
    const double device_us =
        kernels_us * (1 + between.slowdown) + static_cast<double>(launches) * between.gap_us;
    const double spread = 1 + between.host_spread;
    return {std::max(device_us, issue_us), std::max(device_us, issue_us / spread),
            std::max(device_us, issue_us * spread)};
  }

  std::string date_utc_;
  CacheSizes caches_;
  double host_bytes_per_us_;
  LaunchTimes times_, rounded_times_;
  EnergyModel energy_;
  std::map<ExecutorKind, Between> between_;
  double spread_ = 0;
};

}  // namespace

std::unique_ptr<TimeModel> make_time_model(const Calibration& calibration) {
  return std::make_unique<Calibrated>(calibration);
}

}  // namespace tracestep

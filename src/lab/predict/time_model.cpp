#include "lab/predict/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/origins.h"
#include "lab/measure/statistics.h"
#include "lab/predict/between.h"
#include "lab/predict/paces.h"
#include "lab/predict/power.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// True if nodes of the program run beside others, or between ranks.
bool has_lanes(const Program& program) {
  return std::ranges::any_of(program.nodes, [](const Node& node) {
    return node.op->kernel_class == KernelClass::kCollective ||
           (has_lane(*node.op) && node.attrs.integer("lane") != 0);
  });
}

// Adds kernels up by phase and component.
class Parts {
 public:
  void add(const Origin& origin, double us) {
    const auto [found, is_new] =
        index_.try_emplace({origin.phase, component_of(origin.path)}, parts_.size());
    if (is_new) parts_.push_back({origin.phase, found->first.second, 0.0});
    parts_[found->second].ms += us * 1e-3;
  }
  std::vector<PredictedPart> take() { return std::move(parts_); }

 private:
  std::map<std::pair<Phase, std::string>, std::size_t> index_;
  std::vector<PredictedPart> parts_;
};

// The launches of a step, added up: one after the other, and as they run beside each other.
class Launches {
 public:
  Launches(const Program& program, const std::optional<Link>& link, const Between& between)
      : program_(program),
        link_(link),
        between_(between),
        us_(program.nodes.size(), 0.0),
        paces_{1.0, 1 / (1 + between.host_spread), 1 + between.host_spread} {
    if (has_lanes(program)) turns_ = turns_of(program, plan_buffers(program));
  }

  // The time by the link; nullopt: the node is no collective, or no link is known.
  std::optional<double> collective_us(NodeId id) const {
    const Node& node = program_.node(id);
    if (!link_ || node.op->kernel_class != KernelClass::kCollective) return std::nullopt;
    return link_->us(program_, node, turns_[at(id)].opens_batch);
  }

  void add(NodeId id, double us) {
    parts_.add(program_.node(id).origin(), us);
    PredictedClass& of_class =
        classes_[{program_.node(id).origin().phase, program_.node(id).op->kernel_class}];
    of_class.ms += us * 1e-3;
    ++of_class.launches;
    us_[at(id)] = us;
    sum_us_ += us;
    ++launches_;
    // A step can wait for the host in its short kernels and for the device in its optimizer's.
    const double issue_us = between_.issue_us(program_.node(id).op->kernel_class);
    issue_us_ += issue_us;
    for (std::size_t i = 0; i < std::size(queues_); ++i) {
      queues_[i].add(issue_us * paces_[i], between_.until_next_us(us));
    }
  }

  // When the last kernel of a program without lanes ends: with a host that launches as usual, as
  // fast as it ever does, and as slowly.
  std::array<double, 3> ended_us() const {
    std::array<double, 3> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = queues_[i].ended_us();
    return out;
  }
  // The host's time for launching.
  double issue_us() const { return issue_us_; }

  // Fills all but `ms`, its band, and the kernels that were not calibrated.
  StepTime sum() {
    StepTime out;
    out.kernels_ms = sum_us_ * 1e-3;
    out.launches = launches_;
    out.parts = parts_.take();
    for (const auto& [key, sum] : classes_) {
      out.classes.push_back({key.first, key.second, sum.ms, sum.launches});
    }
    if (turns_.empty()) return out;
    const Timeline timeline = timeline_of(program_, turns_, us_);
    out.beside_ms = (sum_us_ - timeline.span) * 1e-3;
    out.collectives_ms = timeline.collectives * 1e-3;
    out.exposed_ms = timeline.exposed * 1e-3;
    return out;
  }

 private:
  static std::size_t at(NodeId id) { return static_cast<std::size_t>(id); }

  const Program& program_;
  const std::optional<Link>& link_;
  const Between& between_;
  std::vector<Turn> turns_;  // by node, in a program with lanes
  Parts parts_;
  std::map<std::pair<Phase, KernelClass>, PredictedClass> classes_;
  std::vector<double> us_;  // by node
  double sum_us_ = 0, issue_us_ = 0;
  std::int64_t launches_ = 0;
  std::array<double, 3> paces_;
  std::array<LaunchQueue, 3> queues_;
};

// --- from a calibration -------------------------------------------------------------------------

using StepPointers = std::vector<const CalibratedStep*>;

bool is_of_products(KernelClass kind) {
  return kind == KernelClass::kGemm || kind == KernelClass::kAttention;
}

// A kernel that lacks a rate takes the usual one of its class, and a class that of all kernels that
// move bytes. Products compute at a pace of their own.
class KernelRates {
 public:
  explicit KernelRates(const StepPointers& steps) {
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
    const Rates usual = fit_rates(moving);
    Rates of_products = usual;
    at(of_products.us_per_unit, Effort::kOperations) = 0;
    for (const auto& [kind, work] : by_class) {
      classes_[kind] =
          fit_rates(work, is_of_products(kind) ? of_products : at_pace_of(work, usual));
    }
    for (const auto& [name, work] : by_kernel) {
      // Relative errors alone would favour times that are too short.
      kernels_[name] =
          at_pace_of(work, fit_rates(work, at_pace_of(work, classes_[class_of[name]])));
    }
  }

  // nullptr: no launch of this kernel was measured.
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

// Times of launches on a device that rounds the operands of products (`tf32`), or does not.
class LaunchTimes {
 public:
  LaunchTimes(const Calibration& calibration, bool tf32)
      : products_(tf32 ? std::span<const MeasuredProduct>() : calibration.products,
                  tf32 ? std::span<const MeasuredProduct>() : calibration.sized_products,
                  multiprocessors_of(calibration)),
        rates_(steps_of(calibration, tf32)) {
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
  // Microseconds of a launch, given by fields of a KernelWork or a CalibratedStep::Launch.
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
    for (ExecutorKind executor : kAllExecutors) {
      between_[executor] = between_kernels(steps, executor, calibration.is_asynchronous);
    }
    // An arena without a capture: no allocator's work, but the host's launches.
    between_[ExecutorKind::kArena] =
        between_[calibration.is_asynchronous ? ExecutorKind::kEager : ExecutorKind::kCompiled];
    std::vector<double> errors;
    for (const CalibratedStep& step : calibration.steps) {
      if (step.is_held_out) errors.push_back(error_of(step));
    }
    spread_ = std::max(kLeastSpread, std::expm1(quantile_of(errors, 0.9)));
  }

  StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                   const std::optional<Link>& link) const override {
    const LaunchTimes& times = times_of(run.precision);
    const Between& between = between_.at(run.executor);
    Launches launches(program, link, between);
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

  double link_us(const KernelWork& w) const {
    return host_bytes_per_us_ > 0 ? w.host_bytes / host_bytes_per_us_ : 0.0;
  }

  const LaunchTimes& times_of(const Precision& precision) const {
    return precision.tf32 ? rounded_times_ : times_;
  }

  // How far a step lies, as a logarithm, from what is predicted for its work by any usual host.
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

  // Times without the order of launches: with a host as usual, a quick and a slow one.
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

// --- from published peaks -----------------------------------------------------------------------

class OfPeaks : public TimeModel {
 public:
  explicit OfPeaks(DevicePeaks peaks) : peaks_(std::move(peaks)) {}

  StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits&,
                   const std::optional<Link>& link) const override {
    const BufferPlan buffer_plan = plan_buffers(program);
    const Between none;
    Launches all(program, link, none);
    double at_peak_ms = 0;  // without collectives
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const auto id = static_cast<NodeId>(i);
      if (!launches(program, node)) continue;
      if (const std::optional<double> us = all.collective_us(id)) {
        all.add(id, *us);
        continue;
      }
      const double link_bytes = bytes_over_link(program, buffer_plan, node);
      const double peak_us = std::max(roof_time(program, node, peaks_, run.precision.tf32).us(),
                                      us_over_link(link_bytes));
      all.add(id, kLaunchUs + peak_us / (is_by_parts(node) ? kShareByParts : kUsualShare));
      at_peak_ms += peak_us * 1e-3;
    }
    StepTime out = all.sum();
    out.ms = out.kernels_ms - out.beside_ms;
    out.low_ms = std::min(at_peak_ms, out.ms);
    out.high_ms = out.ms * kMostSlowdown;
    return out;
  }

  std::string source() const override {
    return fmt::format("from published peaks of {}", peaks_.name);
  }

 private:
  // Fitted to 90 eager steps on an H200 (docs/predict.md): the share of its peaks that kernels
  // reach, and what a launch adds to that.
  static constexpr double kUsualShare = 0.68, kLaunchUs = 2.5;
  // Splitting included, products by parts reach this on model large (bench/results/cuda-h200.md).
  static constexpr double kShareByParts = 0.5;
  // The band's upper end: steps of the H200 lie within a factor of 1.3; other devices may not.
  static constexpr double kMostSlowdown = 1.5;

  double us_over_link(double bytes) const {
    return peaks_.host_gb_s > 0 ? bytes / (peaks_.host_gb_s * 1e3) : 0.0;
  }

  DevicePeaks peaks_;
};

}  // namespace

std::unique_ptr<TimeModel> make_time_model(const Calibration& calibration) {
  return std::make_unique<Calibrated>(calibration);
}

std::unique_ptr<TimeModel> make_time_model(const DevicePeaks& peaks) {
  return std::make_unique<OfPeaks>(peaks);
}

}  // namespace tracestep

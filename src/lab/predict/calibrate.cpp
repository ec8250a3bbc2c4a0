#include "lab/predict/calibrate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "ir/builder.h"
#include "lab/measure/statistics.h"
#include "lab/predict/kernel_work.h"
#include "lab/predict/measure_products.h"
#include "lab/predict/power.h"
#include "lab/predict/sized_products.h"
#include "passes/update_passes.h"
#include "session/session.h"
#include "spec/fields.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

// The number of rounds in which every step is measured. The quietest round counts for the step and
// for each of its kernels, because a machine may be slower for seconds at a time.
constexpr int kRounds = 3, kRoundsAlone = 2;  // alone: a GPU has no other work
constexpr int kTimed = 3, kRecorded = 2;
// Numbers of runs of a step on a GPU, in the first of which the host's time for a launch falls.
constexpr int kWarmAlone = 3, kTimedAlone = 9;
constexpr double kMostMs = 100;  // of a step's runs of either kind in a round; at least one is made
// The ms for which a device is kept busy, then timed: power limits lower clocks in tens of ms.
constexpr double kSustainedMs = 200, kSampledMs = 80;
// After how many ms, and for how many at most, power is metered: some counters move every 100 ms.
constexpr double kRisingMs = 50, kMeteredMs = 300;
constexpr double kKeepSeconds = 5;

// The time of each launch: the median over the recorded steps.
class LaunchTimes {
 public:
  void add(const Recorder& recorder) {
    for (const Span& span : recorder.spans()) {
      us_[span.node].push_back(static_cast<double>(span.end_ns - span.start_ns) * 1e-3);
    }
  }
  double us(NodeId node) const {
    const auto found = us_.find(node);
    constexpr double kLeastUs = 1e-3;  // of a clock that counts nanoseconds
    return found == us_.end() ? kLeastUs : std::max(kLeastUs, median_of(found->second));
  }

 private:
  std::map<NodeId, std::vector<double>> us_;
};

// Merges launches of one kernel with the same work into one, with their median time.
std::vector<CalibratedStep::Launch> merged(const std::vector<KernelWork>& work,
                                           const LaunchTimes& times) {
  std::map<std::tuple<std::string, Efforts, ProductShape>, std::vector<double>> alike;
  std::map<std::string, KernelClass> classes;
  for (const KernelWork& w : work) {
    const double us = times.us(w.node);
    alike[{w.kernel, w.amounts, w.product}].push_back(us);
    classes[w.kernel] = w.kernel_class;
  }
  std::vector<CalibratedStep::Launch> out;
  for (const auto& [key, us] : alike) {
    const auto& [kernel, amounts, product] = key;
    out.push_back({.kernel = kernel,
                   .kernel_class = classes[kernel],
                   .work = {amounts, median_of(us)},
                   .count = std::ssize(us),
                   .product = product});
  }
  return out;
}

// Times of steps, and of the host that issues them.
struct StepSamples {
  std::vector<double> wall_ms, issue_ms;

  void add(const StepTimes& times) {
    wall_ms.push_back(times.wall_ms());
    issue_ms.push_back(times.issue_ms());
  }
};

StepSamples timed(Measurement& measurement, int most) {
  StepSamples out;
  double total = 0;
  while (out.wall_ms.empty() || (std::ssize(out.wall_ms) < most && total < kMostMs)) {
    out.add(measurement.step());
    total += out.wall_ms.back();
  }
  return out;
}

// Keeps the device busy until its clocks are those that it sustains. Returns the power that it
// draws; nullopt: the device does not tell.
std::optional<double> sustain(Measurement& measurement, const Device& device) {
  std::optional<PowerMeter> meter;
  std::optional<double> watts;
  for (double total = 0; total < kSustainedMs || (!watts && total < kMeteredMs);
       total += measurement.step().wall_ms()) {
    if (!meter && total > kRisingMs) meter.emplace(device);
    if (meter) watts = meter->watts();
  }
  return watts;
}

// Times steps after the device has been kept busy.
StepSamples timed_sustained(Measurement& measurement) {
  StepSamples out;
  for (double total = 0; total < kSampledMs; total += out.wall_ms.back())
    out.add(measurement.step());
  return out;
}

double busy_ms_of(const CalibratedStep& step) {
  double us = 0;
  for (const CalibratedStep::Launch& launch : step.kernels) {
    us += launch.work.us * static_cast<double>(launch.count);
  }
  return us * 1e-3;
}

void check_memory(const Outcome& outcome, const std::string& what) {
  if (outcome.status != Status::kOutOfMemory) return;
  throw Error(ErrorCode::kOutOfMemory, "calibration", fmt::format("{}: {}", what, outcome.detail),
              "steps of a calibration take less than a GiB, products on a GPU less than two");
}

// Runs the step on a new device, as it is and with every kernel timed.
CalibratedStep measure_step(const DeviceFactory& make_device, const CalibrationStep& step,
                            const CacheSizes& caches, const StopSignal* stop) {
  CalibratedStep out{
      .key = key_of(step.run), .executor = step.run.executor, .is_held_out = step.is_held_out};
  const std::unique_ptr<Device> device = make_device(step.run);
  const Outcome outcome = attempt([&] {
    Session session(*device, step.run);
    fill_for_timing(session);
    Measurement measurement(session.executor(), *device, stop);
    const bool is_alone = device->is_asynchronous();
    measurement.warm_up(is_alone && !step.is_sustained ? kWarmAlone : 1);
    if (step.is_sustained) out.watts = sustain(measurement, *device).value_or(0);
    const StepSamples samples = step.is_sustained
                                    ? timed_sustained(measurement)
                                    : timed(measurement, is_alone ? kTimedAlone : kTimed);
    out.wall_ms = median_of(samples.wall_ms);
    out.issue_ms = median_of(samples.issue_ms);
    LaunchTimes times;
    measurement.record(out.wall_ms < kMostMs ? kRecorded : 1,
                       [&](const StepTimes&, const Recorder& recorder) { times.add(recorder); });
    if (step.is_metered) out.watts = sustain(measurement, *device).value_or(0);
    out.launches = session.executor().launches();
    out.kernels = merged(kernel_work(session.program(), device->traits(), caches), times);
    out.busy_ms = busy_ms_of(out);
  });
  check_memory(outcome, label_of(step.run));
  return out;
}

// Returns the program of AdamW on `count` elements whose moments lie in the host's memory.
Program update_over_link(std::int64_t count) {
  Builder b("update over the link");
  const auto phase = b.phase(Phase::kOptimizer);
  const Type type{DType::kF32, {count}}, scalar{DType::kF32, {}};
  const Val w = b.parameter("w", type), m = b.state("m", type), v = b.state("v", type);
  const Val g = b.input("g", type), lr = b.input("lr", scalar), step = b.input("step", scalar);
  const std::vector<Val> updated = b.call(find_op("adamw"), {w, g, m, v, lr, step});
  b.update(w, updated[0]);
  b.update(m, updated[1]);
  b.update(v, updated[2]);
  return offload(b.finish());
}

// Measures the link to the host in bytes per µs, each way; 0: the device's memory is the host's.
double measure_host_link(Device& device) {
  if (!device.traits().has_own_memory()) return 0;
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  const Program program = update_over_link(kElements);
  const RankStores stores(device);
  const auto executor = stores.executor({}, program);
  Measurement measurement(*executor, device);
  measurement.warm_up(1);
  double least_us = std::numeric_limits<double>::max();
  measurement.record(kRounds, [&](const StepTimes&, const Recorder& recorder) {
    least_us = std::min(least_us, busy_ms_of(recorder.spans()) * 1e3);
  });
  return bytes_over_link(program, executor->buffer_plan(), program.nodes.front()) / least_us;
}

// Returns the types in which the steps multiply, without tf32, for which another device is made,
// and without float32 by parts, whose products have other kernels.
std::set<DType> product_dtypes(const std::vector<CalibrationStep>& steps) {
  std::set<DType> out;
  for (const CalibrationStep& step : steps) {
    const Precision& precision = step.run.precision;
    if (!precision.tf32 && !precision.split)
      out.insert(precision.autocast.value_or(precision.parameters));
  }
  return out;
}

// Keeps the steps of a calibration that ended early as long as they are those that begin the plan.
std::vector<CalibratedStep> steps_begun(const Calibration& begun,
                                        const std::vector<CalibrationStep>& plan) {
  std::vector<CalibratedStep> out = begun.steps;
  const auto [first, ignored] = std::ranges::mismatch(
      out, plan, [](const CalibratedStep& step, const CalibrationStep& planned) {
        return step.key == key_of(planned.run) && step.executor == planned.run.executor &&
               step.is_held_out == planned.is_held_out;
      });
  out.erase(first, out.end());
  return out;
}

// Hands what has been measured to the plan's `keep`: at once, or if kKeepSeconds have passed.
class Keeper {
 public:
  explicit Keeper(const CalibrationPlan& plan) : keep_(plan.keep) {}

  void keep(const Calibration& begun) {
    if (keep_) keep_(begun);
    last_ = Clock::now();
  }
  void keep_at_times(const Calibration& begun) {
    if (seconds_since(last_) > kKeepSeconds) keep(begun);
  }
  double seconds() const { return seconds_since(start_); }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  const std::function<void(const Calibration&)>& keep_;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

bool is_stopped(const StopSignal* stop) {
  return stop != nullptr && stop->requested();
}

// Measures the grid of products of each dtype that `out` lacks; only whole grids are kept.
void add_products(Device& device, const CalibrationPlan& plan, std::size_t count,
                  const StopSignal* stop, Keeper& keeper, Calibration& out) {
  for (DType dtype : product_dtypes(plan.steps)) {
    if (std::ranges::any_of(out.products, [&](const MeasuredProduct& product) {
          return is_product_of(product.kernel, dtype);
        }))
      continue;
    const std::string what = fmt::format("products of {}", name_of(dtype));
    if (plan.progress) plan.progress(what, 0, count);
    check_memory(attempt([&] {
                   const auto found =
                       measure_products(device, dtype, layers_of(product_grid(dtype)), stop);
                   out.products.insert(out.products.end(), found.begin(), found.end());
                 }),
                 what);
    if (is_stopped(stop)) return;
    keeper.keep(out);
  }
}

// Begins a calibration: describes the device, measures all but steps, and takes over `plan.begun`.
Calibration begin_calibration(const DeviceFactory& make_device, const CalibrationPlan& plan,
                              const StopSignal* stop, Keeper& keeper) {
  Calibration out{.identity = plan.identity, .date_utc = plan.date_utc};
  const std::unique_ptr<Device> device = make_device(plan.steps.front().run);
  out.kind = device->traits().kind;
  out.is_asynchronous = device->is_asynchronous();
  out.caches = cache_sizes(device->traits());
  if (plan.begun) {
    out.products = plan.begun->products;
    out.steps = steps_begun(*plan.begun, plan.steps);
  }
  try {
    out.host_bytes_per_us = measure_host_link(*device);
  } catch (const OutOfMemory&) {  // the host pins too little: the link stays uncalibrated
  }
  if (device->traits().multiplies_in_waves()) {
    add_products(*device, plan, plan.steps.size(), stop, keeper, out);
  }
  return out;
}

// Merges another round of the same step: keeps the shorter time of the step and of each kernel.
void keep_quieter(CalibratedStep& step, const CalibratedStep& other) {
  step.wall_ms = std::min(step.wall_ms, other.wall_ms);
  step.issue_ms = std::min(step.issue_ms, other.issue_ms);
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    double& us = step.kernels[i].work.us;
    us = std::min(us, other.kernels[i].work.us);
  }
  step.busy_ms = busy_ms_of(step);
}

// Measures products of the steps' own sizes, so that the difference between their time in a step
// and alone does not come from sizes.
void add_step_products(const DeviceFactory& make_device, const CalibrationPlan& plan,
                       const StopSignal* stop, Calibration& out) {
  std::set<NamedProduct> wanted;
  for (const CalibratedStep& step : out.steps) {
    if (!run_of_key(step.key).precision.tf32) wanted.merge(products_of(step));
  }
  const auto exact = std::ranges::find_if(
      plan.steps, [](const CalibrationStep& step) { return !step.run.precision.tf32; });
  if (out.products.empty() || exact == plan.steps.end()) return;
  const auto device = [&] { return make_device(exact->run); };
  const auto found = measure_sized_products(device, wanted, out, stop).measured;
  out.sized_products.insert(out.sized_products.end(), found.begin(), found.end());
}

}  // namespace

std::optional<Calibration> calibrate(const DeviceFactory& make_device, const CalibrationPlan& plan,
                                     const StopSignal* stop) {
  Keeper keeper(plan);
  const std::vector<CalibrationStep>& steps = plan.steps;
  Calibration out = begin_calibration(make_device, plan, stop, keeper);
  const std::size_t measurements = steps.size() * (out.is_asynchronous ? kRoundsAlone : kRounds);
  const std::size_t begun = is_stopped(stop) ? measurements : out.steps.size();
  for (std::size_t i = begun; i < measurements; ++i) {
    const bool is_again = i >= steps.size();
    if (is_again && plan.most_seconds > 0 && keeper.seconds() > plan.most_seconds) break;
    const std::size_t at = i % steps.size();
    if (plan.progress) plan.progress(label_of(steps[at].run), i, measurements);
    CalibratedStep measured = measure_step(make_device, steps[at], out.caches, stop);
    if (is_stopped(stop)) break;
    if (is_again) {
      keep_quieter(out.steps[at], measured);
    } else {
      out.steps.push_back(std::move(measured));
    }
    keeper.keep_at_times(out);
  }
  if (!is_stopped(stop)) add_step_products(make_device, plan, stop, out);
  if (!is_stopped(stop)) return out;
  keeper.keep(out);
  return std::nullopt;
}

SpotCheck spot_check(const DeviceFactory& make_device, const Calibration& calibration,
                     const Place& place) {
  std::vector<const CalibratedStep*> held_out;
  for (const CalibratedStep& step : calibration.steps) {
    if (step.is_held_out) held_out.push_back(&step);
  }
  SpotCheck out;
  std::vector<double> ratios;
  for (std::size_t i : {std::size_t{0}, held_out.size() / 3, held_out.size() / 2}) {
    RunSpec step = run_of_key(held_out[i]->key);
    step.place = place;
    step.place.memory_limit_bytes = 0;
    const double then_ms = held_out[i]->wall_ms;
    double now_ms = std::numeric_limits<double>::max();
    for (int round = 0; round < kRounds; ++round) {
      now_ms =
          std::min(now_ms, measure_step(make_device, {step}, calibration.caches, nullptr).wall_ms);
    }
    out.steps.push_back({label_of(step), then_ms, now_ms});
    ratios.push_back(now_ms / then_ms);
  }
  out.ratio = median_of(ratios);
  return out;
}

std::string verdict_of(const SpotCheck& check, const std::string& date_utc, double tolerance) {
  if (check.ratio <= 1 + tolerance && check.ratio >= 1 / (1 + tolerance)) return {};
  const bool is_slower = check.ratio > 1;
  return fmt::format(
      "steps of the calibration of {} take {:.2f} times as long now: {}; predictions are of the "
      "device as it was then",
      date_utc, check.ratio,
      is_slower ? "the device got slower since, or shares its cores with other work"
                : "the device got faster since, or the calibration was disturbed or edited");
}

}  // namespace tracestep

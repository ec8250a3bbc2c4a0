#include "lab/time/cell.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/plan.h"
#include "analysis/saved.h"
#include "lab/measure/recorded_times.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "passes/recompute_budget.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"
#include "session/session.h"
#include "spec/fields.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

// The region that a profiler records: only the timed steps. The device's state is read before and
// after it.
class MeasuredRegion {
 public:
  MeasuredRegion(Device& device, CellResult& out) : device_(device), out_(out) {
    out_.facts_before = device_.facts();
    device_.profile(true);
    range_.emplace(device_.ranges(), "measure");
  }
  ~MeasuredRegion() {
    range_.reset();
    device_.profile(false);
    out_.facts_after = device_.facts();
  }
  MeasuredRegion(const MeasuredRegion&) = delete;
  MeasuredRegion& operator=(const MeasuredRegion&) = delete;

 private:
  Device& device_;
  CellResult& out_;
  std::optional<ScopedRange> range_;
};

std::int64_t major_faults() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_majflt : 0;
}

void time_steps(Measurement& measurement, Device& device, const StepObserver& observe,
                CellResult& out) {
  out.host.before = read_host_facts();  // not between warm-up and samples: it may take milliseconds
  measurement.warm_up(out.spec.protocol.warmup,
                      [&](const StepTimes& t) { out.warmup_ms.push_back(t.wall_ms()); });
  const MeasuredRegion region(device, out);
  out.profiled = device.ranges() != nullptr;
  const std::int64_t faults_before = major_faults(),
                     allocations_before = device.allocator().stats().allocation_count;
  Protocol protocol = out.spec.protocol;
  if (protocol.visit_seconds > 0 && device.is_asynchronous()) {
    protocol.visit_seconds = kAsynchronousVisitSeconds;
  }
  const auto most = static_cast<std::size_t>(protocol.max_noise_percent > 0 ? protocol.most_steps()
                                                                            : protocol.steps);
  const auto is_done = [&] {
    out.stopped_by = end_of_sampling(protocol, out.samples_ms);
    return agree(device.group(), !out.stopped_by.empty());
  };
  while (!is_done()) {
    if (observe) observe(out.samples_ms.size(), most);
    const StepTimes times = measurement.step();
    out.samples_ms.push_back(times.wall_ms());
    out.issue_samples_ms.push_back(times.issue_ms());
    out.span_samples_ms.push_back(measurement.span_ms());
  }
  out.major_faults = major_faults() - faults_before;
  out.allocations_per_step =
      static_cast<double>(device.allocator().stats().allocation_count - allocations_before) /
      static_cast<double>(std::max<std::size_t>(out.samples_ms.size(), 1));
  out.choices = device.choices();
  out.host.after = read_host_facts();
}

// Cuts launches that other work delayed to the time that counts for them (undisturbed_ms()).
void cut_interruptions(std::vector<RecordedStep>& steps) {
  std::vector<RecordedLaunch> launches;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const Span& s : steps[i].spans) {
      launches.push_back({.step = static_cast<std::int32_t>(i),
                          .node = s.node,
                          .ms = static_cast<double>(s.end_ns - s.start_ns) * 1e-6});
    }
  }
  const std::vector<double> counted_ms = undisturbed_ms(launches);
  std::size_t next = 0;
  for (RecordedStep& step : steps) {
    for (Span& s : step.spans) {
      const double own_ms = launches[next].ms, ms = counted_ms[next];
      ++next;
      if (ms >= own_ms) continue;
      s.end_ns = s.start_ns + std::llround(ms * 1e6);
      step.interrupted_ms += own_ms - ms;
    }
  }
}

void set_communication(CellResult& out) {
  if (!out.spec.step.parallel.is_on()) return;
  std::vector<Span> collectives = out.spans;
  std::erase_if(collectives, [&](const Span& s) {
    const OpDef& op = *out.program.node(s.node).op;
    return op.kernel_class != KernelClass::kCollective || !has_lane(op);
  });
  out.communication_ms = busy_ms_of(collectives);
  out.exposed_ms = std::max(0.0, out.device_span_ms - (out.device_busy_ms - *out.communication_ms));
}

// Records steps, no more than were timed: one who asks for a single long step does not wait for
// four.
void record_steps(Measurement& measurement, CellResult& out) {
  const int timed = static_cast<int>(std::ssize(out.samples_ms));
  const int steps = std::min(out.spec.protocol.recorded_steps, timed);
  measurement.record(steps, [&](const StepTimes& t, const Recorder& r) {
    out.recorded.push_back({measurement.span_ns(), t.end_ns - t.start_ns, r.spans()});
    out.memory_events = r.memory_events();
  });
}

// Sets kernels and clocks from the recorded step whose kernel time is in the middle.
void set_recorded(CellResult& out) {
  std::vector<RecordedStep> steps = out.recorded;
  if (steps.empty()) return;
  out.recorded_busy_ms.clear();
  std::vector<double> wall;
  for (const RecordedStep& step : steps) {
    out.recorded_busy_ms.push_back(step.busy_ms());
    wall.push_back(static_cast<double>(step.wall_ns) * 1e-6);
  }
  cut_interruptions(steps);
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle, {}, &RecordedStep::busy_ms);
  out.device_busy_ms = middle->busy_ms();
  out.interrupted_ms = middle->interrupted_ms;
  out.span_ns = middle->span_ns;
  out.spans = std::move(middle->spans);
  out.instrumented_wall_ms = median_of(wall);
  set_communication(out);
}

// Sets the clocks from the samples and the recorded steps of all visits.
void set_clocks(CellResult& out) {
  if (out.samples_ms.empty()) return;
  out.wall_ms = median_of(out.samples_ms);
  out.issue_ms = median_of(out.issue_samples_ms);
  out.device_span_ms = median_of(out.span_samples_ms);
  set_recorded(out);
  // If kernels run inside of the calls, issuing takes the wall time minus the kernels' time.
  if (!out.is_asynchronous) out.issue_ms = std::max(0.0, out.wall_ms - out.device_busy_ms);
}

// Names the clock that times kernels of the device. Profilers of GPUs have one (lab/profile/run.h).
std::string instrument_of(Device& device) {
  if (!device.is_asynchronous()) return "the host's clock around each kernel";
  return fmt::format("events around each kernel, the device held, less {} ns for the events",
                     device.mark_overhead_ns());
}

// Returns the physical memory outside the allocator's segments. On a CPU the system counts the
// whole process's, of which other ranks may have a part, so nullopt; a GPU belongs to one rank.
std::optional<std::int64_t> outside_bytes(Device& device, const RunSpec& run) {
  const std::int64_t resident = device.resident_bytes();  // before the next line takes some
  const bool is_shared = run.parallel.is_on() && !device.is_asynchronous();
  if (resident == 0 || is_shared) return std::nullopt;
  return resident - device.resident_reserved_bytes();
}

// Counts the work of all ranks; `program` is one rank's, whose parameters may be parts.
void count_work(const Program& program, CellResult& out) {
  out.parameters = parameter_count(forward_program(out.spec.step));
  out.flops = gemm_flops(program) * out.spec.step.parallel.ranks;
}

// Counts the ranks whose bytes are as predicted; `received`: this rank's in the recorded steps.
// Every process must call this.
void count_ranks(const Device& device, std::int64_t received, CellResult& out) {
  Communicator* const group = device.group();
  if (group == nullptr || group->processes() == nullptr) return;
  const std::int64_t steps = std::ssize(out.recorded);
  const bool is_one = out.peak_bytes == out.predicted_peak_bytes &&
                      received == steps * received_bytes(out.program, group->rank());
  const std::vector<std::uint64_t> all = group->processes()->exchange(is_one ? 1 : 0);
  out.ranks_as_predicted = std::ranges::count(all, 1u);
}

void measure(Device& device, const StopSignal* stop, const StepObserver& observe, CellResult& out) {
  const std::optional<std::int64_t> outside_at_start = outside_bytes(device, out.spec.step);
  const std::int64_t start_ns = now_ns();
  Session session(device, out.spec.step);
  out.compile_ms = static_cast<double>(now_ns() - start_ns) * 1e-6;
  Executor& executor = session.executor();
  out.program = executor.program();
  if (has_arena(out.spec.step.executor)) {
    const Plan plan = plan_step(out.program, out.traits);
    out.arena_bytes = plan.arena_bytes;
    out.arena_lower_bound_bytes = plan.least_arena_bytes;
  }
  out.predicted_peak_bytes = executor.predicted_peak_bytes();
  count_work(out.program, out);
  out.saved_bytes = saved_bytes(out.program) / micro_batches_of(out.spec.step);
  out.launches = executor.launches();
  fill_for_timing(session);
  device.allocator().reset_peak();
  Measurement measurement(executor, device, stop);
  time_steps(measurement, device, observe, out);
  out.outside_bytes = outside_bytes(device, out.spec.step);
  if (outside_at_start && out.outside_bytes) {
    const std::int64_t growth = *out.outside_bytes - *outside_at_start;
    // Below zero, other processes freed memory meanwhile, and our share is unknown.
    if (growth >= 0) out.untracked_bytes = growth;
  }
  out.captured = executor.is_captured();
  out.kernels = executor.kernels();
  if (const int steps = out.spec.protocol.part_steps; steps > 0) {
    out.parts = time_step_parts(executor, device, measurement, steps);
  }
  out.recorded_by = instrument_of(device);
  const auto received = [&] { return device.group() ? device.group()->received_bytes() : 0; };
  const std::int64_t received_before = received();
  record_steps(measurement, out);
  const std::int64_t received_in_steps = received() - received_before;
  out.is_asynchronous = device.is_asynchronous();
  set_clocks(out);
  out.peak_bytes = device.allocator().stats().peak_requested_bytes;
  count_ranks(device, received_in_steps, out);
  out.host_bytes = device.host_bytes();
  if (out.spec.step.mode != Mode::kInference && device.computes()) {
    out.loss = executor.scalar("loss");
  }
}

// Sets the predictions, which are known even for a cell that ran out of memory.
void add_needs(const Device& device, CellResult& out) {
  if (out.predicted_peak_bytes != 0) return;
  const Program program = step_program(out.spec.step, device);
  out.predicted_peak_bytes =
      tracestep::predicted_peak_bytes(out.spec.step.executor, program, device.traits());
  count_work(program, out);
  out.launches = launch_count(program);
}

}  // namespace

CellResult cell_beyond_budget(const CellSpec& spec, const BudgetNotMet& error) {
  CellResult out;
  out.spec = spec;
  out.device = spec.step.place.device;
  out.status = Status::kOutOfMemory;
  out.detail = error.what();
  out.parameters = parameter_count(forward_program(spec.step));
  out.predicted_peak_bytes = error.least_peak_bytes();
  return out;
}

void add_visit(CellResult& result, const CellResult& later) {
  join_visits(result.host, later.host);
  join_visits(result.facts_before, result.facts_after, later.facts_before, later.facts_after);
  result.major_faults += later.major_faults;
  if (result.visits.empty()) result.visits = {static_cast<double>(result.samples_ms.size())};
  result.visits.push_back(static_cast<double>(later.samples_ms.size()));
  for (auto list :
       {&CellResult::samples_ms, &CellResult::issue_samples_ms, &CellResult::span_samples_ms}) {
    (result.*list).insert((result.*list).end(), (later.*list).begin(), (later.*list).end());
  }
  result.recorded.insert(result.recorded.end(), later.recorded.begin(), later.recorded.end());
  set_clocks(result);
}

CellResult visit(const DeviceFactory& make_device, const CellSpec& spec, const StopSignal* stop,
                 const StepObserver& observe) {
  try {
    return measure_cell(make_device, spec, stop, observe);
  } catch (const BudgetNotMet& error) {
    return cell_beyond_budget(spec, error);
  }
}

std::string label_of(const CellSpec& spec) {
  return label_of(spec.step);
}

std::vector<double> beside_samples(const CellResult& result) {
  return result.status == Status::kOk ? result.samples_ms : std::vector<double>();
}

Json key_of(const CellSpec& spec) {
  Json out = tracestep::key_of(spec.step);
  if (spec.copy > 1) out["copy"] = spec.copy;
  return out;
}

TimedSamples timed_samples(const CellResult& result) {
  return TimedSamples(result.samples_ms, result.visits, true);
}

double visit_weight(const CellSpec& spec) {
  const RunSpec& run = spec.step;
  const double passes = run.mode == Mode::kStep ? 3.5 : run.mode == Mode::kForwardBackward ? 3 : 1;
  const auto rows = static_cast<double>(run.shape.batch * micro_batches_of(run));
  const double steps = spec.protocol.warmup + 1 + (spec.protocol.recorded_steps > 0 ? 1 : 0);
  return passes * steps * forward_flops(run.model, rows, static_cast<double>(run.shape.context));
}

std::optional<double> energy_per_step_j(const CellResult& result) {
  constexpr double kLeastMs = 500;
  const std::optional<double> before = result.facts_before.energy_j;
  const std::optional<double> after = result.facts_after.energy_j;
  const double ms = std::accumulate(result.samples_ms.begin(), result.samples_ms.end(), 0.0);
  if (!before || !after || ms < kLeastMs) return std::nullopt;
  const double joules = *after - *before;
  // More than the device may draw: the counter moved by more than these steps used.
  const std::optional<double> limit_w = result.facts_after.power_limit_w;
  if (limit_w && joules > *limit_w * ms * 1e-3) return std::nullopt;
  return joules / static_cast<double>(result.samples_ms.size());
}

CellResult measure_cell(const DeviceFactory& make_device, const CellSpec& spec,
                        const StopSignal* stop, const StepObserver& observe) {
  CellResult out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.step);
  out.device = device->name();
  out.traits = device->traits();
  out.computes = device->computes();
  const Outcome outcome = attempt([&] { measure(*device, stop, observe, out); });
  out.status = outcome.status;
  out.detail = outcome.detail;
  out.lack = outcome.lack;
  if (out.status != Status::kOk) out.samples_ms.clear();
  if (out.status == Status::kOutOfMemory) add_needs(*device, out);
  return out;
}

}  // namespace tracestep

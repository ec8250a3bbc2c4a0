#include "lab/time/cell.h"

#include <sys/resource.h>

#include <algorithm>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/saved.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "session/session.h"

namespace tracestep {
namespace {

constexpr double kMsPerNs = 1e-6;

struct Sample {
  double wall_ms, issue_ms, span_ms;
};

Sample timed_run(Executor& executor, Device& device, Recorder* recorder = nullptr) {
  const ScopedRange range(device.ranges(), "step");
  const std::int64_t start = now_ns();
  executor.run(recorder);
  const std::int64_t issued = now_ns();
  device.synchronize();
  const std::int64_t end = now_ns();
  return {static_cast<double>(end - start) * kMsPerNs,
          static_cast<double>(issued - start) * kMsPerNs,
          static_cast<double>(executor.device_span_ns()) * kMsPerNs};
}

struct Interrupted {};

void check_stop(const StopSignal* stop) {
  if (stop != nullptr && stop->requested()) throw Interrupted();
}

// What a profiler records: the timed steps and nothing else. The device's state is read on both
// sides of it.
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

double busy_ms_of(const std::vector<Span>& spans) {
  std::int64_t total = 0;
  for (const Span& s : spans) total += s.end_ns - s.start_ns;
  return static_cast<double>(total) * kMsPerNs;
}

std::int64_t major_faults() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_majflt : 0;
}

void time_steps(Executor& executor, Device& device, const StopSignal* stop, CellResult& out) {
  for (int i = 0; i < out.spec.warmup; ++i) {
    const ScopedRange range(device.ranges(), "warm-up");
    check_stop(stop);
    out.warmup_ms.push_back(timed_run(executor, device).wall_ms);
  }
  const SamplingRule rule{.steps = out.spec.steps,
                          .max_noise_percent = out.spec.max_noise_percent,
                          .max_steps = out.spec.max_steps,
                          .max_seconds = out.spec.max_seconds};
  const MeasuredRegion region(device, out);
  out.profiled = device.ranges() != nullptr;
  const std::int64_t faults_before = major_faults();
  std::vector<double> spans, issues;
  while ((out.stopped_by = end_of_sampling(rule, out.samples_ms)).empty()) {
    check_stop(stop);
    const Sample sample = timed_run(executor, device);
    out.samples_ms.push_back(sample.wall_ms);
    issues.push_back(sample.issue_ms);
    spans.push_back(sample.span_ms);
  }
  out.major_faults = major_faults() - faults_before;
  out.wall_ms = median_of(out.samples_ms);
  out.issue_ms = median_of(issues);
  out.device_span_ms = median_of(spans);
  out.choices = device.choices();
}

// Records the events of an allocator while it lives, in a recorder that must live longer.
class Recording {
 public:
  Recording(Allocator& allocator, Recorder& recorder) : allocator_(allocator) {
    allocator_.set_recorder(&recorder);
  }
  ~Recording() { allocator_.set_recorder(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Allocator& allocator_;
};

// Separate runs with spans: recording costs a little, so it never touches the timed ones.
void record_steps(Executor& executor, Device& device, const StopSignal* stop, CellResult& out) {
  Recorder recorder({.spans = true, .memory = true});
  recorder.reserve(static_cast<std::size_t>(executor.launches()) * 2,
                   static_cast<std::size_t>(executor.launches()) * 12);
  std::vector<double> busy, wall;
  for (int i = 0; i < out.spec.instrumented_steps; ++i) {
    check_stop(stop);
    const Recording recording(device.allocator(), recorder);
    executor.release_outputs();
    recorder.clear();
    const Sample sample = timed_run(executor, device, &recorder);
    wall.push_back(sample.wall_ms);
    busy.push_back(busy_ms_of(recorder.spans()));
    out.span_ns = static_cast<std::int64_t>(sample.span_ms / kMsPerNs);
  }
  out.spans = recorder.spans();
  out.memory_events = recorder.memory_events();
  if (busy.empty()) return;
  out.device_busy_ms = median_of(busy);
  out.instrumented_wall_ms = median_of(wall);
}

// Physical memory outside the allocator's segments.
std::optional<std::int64_t> outside_bytes(Device& device) {
  const std::int64_t resident = device.resident_bytes();  // before the next line takes some
  if (resident == 0) return std::nullopt;
  return resident - device.resident_reserved_bytes();
}

void measure(Device& device, const StopSignal* stop, CellResult& out) {
  const std::optional<std::int64_t> outside_at_start = outside_bytes(device);
  Session session(device, out.spec.step);
  Executor& executor = session.executor();
  out.program = executor.program();
  out.predicted_peak_bytes = executor.predicted_peak_bytes();
  out.parameters = parameter_count(out.program);
  out.flops = gemm_flops(out.program);
  out.saved_bytes = saved_bytes(out.program);
  out.launches = executor.launches();
  session.fill_for_timing();
  device.allocator().reset_peak();
  time_steps(executor, device, stop, out);
  out.outside_bytes = outside_bytes(device);
  if (outside_at_start && out.outside_bytes) {
    const std::int64_t growth = *out.outside_bytes - *outside_at_start;
    // Below zero others gave memory back meanwhile: what is ours cannot be told.
    if (growth >= 0) out.untracked_bytes = growth;
  }
  record_steps(executor, device, stop, out);
  // Where kernels run inside the calls, issuing is what is left of the wall without their own time.
  if (!device.is_asynchronous()) out.issue_ms = std::max(0.0, out.wall_ms - out.device_busy_ms);
  out.peak_bytes = device.allocator().stats().peak_requested_bytes;
  if (out.spec.step.mode != Mode::kInference && device.computes()) {
    out.loss = executor.scalar("loss");
  }
}

}  // namespace

CellResult measure_cell(const DeviceFactory& make_device, const CellSpec& spec,
                        const StopSignal* stop) {
  CellResult out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.step);
  out.device = device->name();
  out.traits = device->traits();
  out.computes = device->computes();
  try {
    measure(*device, stop, out);
  } catch (const Interrupted&) {
    out.status = "interrupted";
    out.samples_ms.clear();
  } catch (const OutOfMemory& e) {
    out.status = "oom";
    out.detail = e.what();
    out.samples_ms.clear();
    // What it would have needed is known all the same.
    if (out.predicted_peak_bytes == 0) {
      const Program program = step_program(out.spec.step, *device);
      out.predicted_peak_bytes =
          tracestep::predicted_peak_bytes(out.spec.step.executor, program, device->traits());
      out.parameters = parameter_count(program);
      out.flops = gemm_flops(program);
      out.launches = launch_count(program);
    }
  }
  return out;
}

}  // namespace tracestep

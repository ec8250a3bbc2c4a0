#include "lab/measure/cell.h"

#include <sys/resource.h>

#include <algorithm>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "exec/eager.h"
#include "lab/measure/facts_json.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/measure/step_inputs.h"
#include "train/model_store.h"

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

// What one graph holds for backward.
std::int64_t saved_bytes_of(const Program& program, Mode mode) {
  std::int64_t total = 0;
  if (mode == Mode::kForward) {
    for (const Output& o : program.outputs) {
      if (o.name.starts_with("saved.")) total += program.type(o.value).bytes();
    }
    return total;
  }
  for (const SavedValue& saved : saved_for_backward(program)) total += saved.bytes;
  return total;
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
  Store store(device);
  EagerExecutor executor(store, step_program(out.spec.step, device));
  out.program = executor.program();
  out.predicted_peak_bytes = executor.predicted_peak_bytes();
  out.parameters = parameter_count(out.program);
  out.flops = gemm_flops(out.program);
  out.saved_bytes = saved_bytes_of(out.program, out.spec.step.mode);
  out.launches = executor.launches();
  initialize_for_timing(store, out.spec.seed);
  set_step_inputs(executor, out.spec.step, out.spec.seed);
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

void apply_precision(ModelConfig& model, std::string_view precision) {
  model.precision = parse_precision("--precision", precision);
}

CellResult measure_cell(const DeviceFactory& make_device, const CellSpec& spec,
                        const StopSignal* stop) {
  CellResult out;
  out.spec = spec;
  apply_precision(out.spec.step.model, spec.precision);
  if (spec.executor != "eager") {
    fail_usage("--executor", "'{}' is not available; eager is", spec.executor);
  }
  const std::unique_ptr<Device> device = make_device();
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
          tracestep::predicted_peak_bytes(program, plan_storage(program), device->traits());
      out.parameters = parameter_count(program);
      out.flops = gemm_flops(program);
      out.launches = launch_count(program);
    }
  }
  return out;
}

std::vector<Column> cell_columns() {
  using K = ColumnKind;
  const auto real = [](std::string name, std::string title, std::string text) {
    return Column{.name = std::move(name),
                  .title = std::move(title),
                  .unit = "ms",
                  .kind = K::kReal,
                  .digits = 3,
                  .description = std::move(text)};
  };
  return {
      {.name = "size", .description = "preset, or custom"},
      {.name = "context", .kind = K::kInt, .description = "tokens per row (T)"},
      {.name = "batch", .kind = K::kInt, .description = "rows (B)"},
      {.name = "vocab", .kind = K::kInt, .description = "vocabulary (V)", .data_only = true},
      {.name = "mode", .description = "what a step does"},
      {.name = "precision", .description = "of parameters and activations"},
      {.name = "ops", .description = "granularity of the program"},
      {.name = "executor", .description = "how it runs", .data_only = true},
      {.name = "device", .description = "where it runs"},
      {.name = "status", .description = "ok or oom"},
      {.name = "parameters", .kind = K::kInt, .description = "elements", .data_only = true},
      {.name = "samples_ms", .kind = K::kReals, .description = "wall time of each timed step"},
      real("mean_ms", "mean", "of the samples"),
      real("std_ms", "std", "sample standard deviation"),
      real("median_ms", "median", "of the samples"),
      real("min_ms", "min", "of the samples"),
      real("p95_ms", "p95", "95th percentile, linear between samples"),
      real("interval_low_ms", "95 % from",
           "lower end of the 95 % interval of the median, an order statistic; empty with fewer "
           "than six samples"),
      real("interval_high_ms", "95 % to", "the upper end"),
      {.name = "noise_percent",
       .title = "noise",
       .unit = "±%",
       .kind = K::kReal,
       .digits = 2,
       .description = "half that interval, in percent of the median"},
      {.name = "stopped_by",
       .description = "why sampling ended: steps (as many as asked for), noise (--max-noise is "
                      "met), max-steps or max-seconds (it is not)",
       .data_only = true},
      {.name = "warmup_ms", .kind = K::kReals, .description = "wall time of each warm-up step"},
      real("wall_ms", "wall", "median time from call to finished"),
      real("issue_ms", "issue", "host time of the wall outside kernels"),
      real("device_span_ms", "span", "first kernel start to last kernel end"),
      real("device_busy_ms", "busy", "sum of kernel times, from separate recorded steps"),
      {.name = "peak_bytes",
       .title = "peak",
       .kind = K::kBytes,
       .description = "requested bytes at the peak, by the allocator"},
      {.name = "predicted_peak_bytes",
       .title = "predicted",
       .kind = K::kBytes,
       .description = "the same from the program alone"},
      {.name = "untracked_bytes",
       .title = "untracked",
       .kind = K::kBytes,
       .description = "physical memory outside the allocator's segments, since the start"},
      {.name = "outside_bytes",
       .kind = K::kBytes,
       .description = "the same in all: the program's code and libraries; on a GPU the driver's "
                      "count of used memory, other processes included, less the segments",
       .data_only = true},
      {.name = "saved_bytes",
       .kind = K::kBytes,
       .description = "forward values kept for backward, by the program",
       .data_only = true},
      {.name = "major_faults",
       .kind = K::kInt,
       .description = "pages that came from disk during the timed steps",
       .data_only = true},
      {.name = "flops", .kind = K::kInt, .description = "of matrix products", .data_only = true},
      {.name = "tflops",
       .title = "TFLOP/s",
       .kind = K::kReal,
       .digits = 3,
       .description = "flops over the median; empty where nothing is computed"},
      {.name = "roof_tflops",
       .title = "roof",
       .unit = "TFLOP/s",
       .kind = K::kReal,
       .digits = 3,
       .description = "what the device reaches at best, measured before the first row",
       .data_only = true},
      {.name = "tokens_per_s",
       .title = "tokens/s",
       .kind = K::kReal,
       .digits = 0,
       .description = "batch times context over the median; empty likewise"},
      {.name = "launches", .kind = K::kInt, .description = "kernels per step"},
      {.name = "instrumented_wall_ms",
       .kind = K::kReal,
       .digits = 3,
       .description = "median wall of the recorded steps",
       .data_only = true},
      {.name = "profiled",
       .kind = K::kBool,
       .description = "a profiler listened to the timed steps",
       .data_only = true},
      {.name = "choices",
       .description = "how kernels were chosen where there is a choice",
       .data_only = true},
      {.name = "throttled",
       .description = "what slowed the device down during the timed steps",
       .data_only = true},
      {.name = "facts_before",
       .kind = K::kStructured,
       .description = "clocks, power and temperature of the device before the timed steps",
       .data_only = true},
      {.name = "facts_after",
       .kind = K::kStructured,
       .description = "the same after them",
       .data_only = true},
      {.name = "detail", .description = "why the status is not ok", .data_only = true},
  };
}

std::vector<Json> cell_row(const CellResult& r) {
  const bool ok = r.status == "ok";
  const Summary s = summarize(r.samples_ms);
  const Interval interval = median_interval(r.samples_ms);
  const bool has_interval = ok && interval.coverage >= 0.95;
  const auto when_ok = [&](Json v) { return ok ? v : Json(); };
  const auto text = [](const std::string& v) { return v.empty() ? Json() : Json(v); };
  const auto list = [](const std::vector<double>& values) {
    Json out = Json::array();
    for (double v : values) out.push_back(v);
    return out;
  };
  const StepSpec& spec = r.spec.step;
  const double seconds = s.median * 1e-3;
  const auto tokens = static_cast<double>(spec.shape.batch * spec.shape.context);
  const bool has_speed = ok && r.computes && seconds > 0.0;
  return {spec.model.name,
          spec.shape.context,
          spec.shape.batch,
          spec.model.vocab,
          name_of(spec.mode),
          r.spec.precision,
          name_of(spec.ops),
          r.spec.executor,
          r.device,
          r.status,
          r.parameters,
          list(r.samples_ms),
          when_ok(s.mean),
          when_ok(s.sample_std),
          when_ok(s.median),
          when_ok(s.min),
          when_ok(s.p95),
          has_interval ? Json(interval.low) : Json(),
          has_interval ? Json(interval.high) : Json(),
          has_interval ? Json(noise_percent_of(r.samples_ms)) : Json(),
          when_ok(text(r.stopped_by)),
          list(r.warmup_ms),
          when_ok(r.wall_ms),
          when_ok(r.issue_ms),
          when_ok(r.device_span_ms),
          when_ok(r.device_busy_ms),
          when_ok(r.peak_bytes),
          r.predicted_peak_bytes,
          when_ok(r.untracked_bytes ? Json(*r.untracked_bytes) : Json()),
          when_ok(r.outside_bytes ? Json(*r.outside_bytes) : Json()),
          r.saved_bytes,
          when_ok(r.major_faults),
          r.flops,
          has_speed ? Json(static_cast<double>(r.flops) / seconds * 1e-12) : Json(),
          r.spec.roof_tflops > 0 ? Json(r.spec.roof_tflops) : Json(),
          has_speed ? Json(tokens / seconds) : Json(),
          r.launches,
          when_ok(r.instrumented_wall_ms),
          when_ok(r.profiled),
          text(r.choices),
          text(throttled_between(r.facts_before, r.facts_after)),
          to_json(r.facts_before),
          to_json(r.facts_after),
          text(r.detail)};
}

}  // namespace tracestep

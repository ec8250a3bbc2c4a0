#include "lab/profile/run.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "lab/measure/statistics.h"
#include "passes/recompute_budget.h"
#include "runtime/processes.h"
#include "session/session.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

// Lets the device's profiler record while it lives; take() ends it.
class Tracing {
 public:
  Tracing(ActivityTracer& tracer, Executor& executor) : tracer_(tracer) {
    tracer_.start();
    observation_.emplace(executor, [&](RunObserver& observer) { observer.tracer = &tracer_; });
  }
  ~Tracing() {
    observation_.reset();
    if (!taken_) discard();
  }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  ActivityTrace take() {
    taken_ = true;
    return tracer_.stop();
  }

 private:
  void discard() noexcept {
    try {
      tracer_.stop();
    } catch (const std::exception&) {  // the error that ended the steps is reported
    }
  }

  ActivityTracer& tracer_;
  std::optional<Observation> observation_;
  bool taken_ = false;
};

PlainTimes run_plain(Measurement& measurement, const ProfileSpec& spec) {
  PlainTimes out;
  out.host.before = read_host_facts();
  measurement.warm_up(spec.protocol.warmup,
                      [&](const StepTimes& times) { out.warmup_ms.push_back(times.wall_ms()); });
  std::vector<double> wall, issue, span;
  for (int i = 0; i < spec.protocol.steps; ++i) {
    const StepTimes times = measurement.step();
    wall.push_back(times.wall_ms());
    issue.push_back(times.issue_ms());
    span.push_back(measurement.span_ms());
  }
  out.host.after = read_host_facts();
  if (wall.empty()) return out;
  out.wall_ms = median_of(wall);
  out.issue_ms = median_of(issue);
  out.span_ms = median_of(span);
  out.samples_ms = std::move(wall);
  return out;
}

// Assigns indices to names in the order of first use.
class Names {
 public:
  explicit Names(std::vector<std::string>& names) : names_(names) {}
  std::int32_t number_of(std::string name) {
    const auto [found, is_new] =
        numbers_.try_emplace(std::move(name), static_cast<std::int32_t>(names_.size()));
    if (is_new) names_.push_back(found->first);
    return found->second;
  }

 private:
  std::vector<std::string>& names_;
  std::map<std::string, std::int32_t> numbers_;
};

void set_span(ProfiledStep& step, std::span<const ProfiledLaunch> launches) {
  if (launches.empty()) {
    step.first_ns = step.last_ns = step.start_ns;
    return;
  }
  step.first_ns = launches.front().start_ns;
  step.last_ns = launches.front().end_ns;
  for (const ProfiledLaunch& l : launches) step.last_ns = std::max(step.last_ns, l.end_ns);
}

// Records the executor's spans, whose zero (the first kernel's start) is put at the call's start.
void record_spans(Measurement& measurement, Profile& out) {
  out.source = "executor spans";
  Names names(out.names);
  std::vector<std::int32_t> name_of_node(out.program.nodes.size(), -1);
  measurement.record(
      out.spec.protocol.recorded_steps, [&](const StepTimes& times, const Recorder& recorder) {
        ProfiledStep step{times};
        const std::size_t first = out.launches.size();
        for (const Span& s : recorder.spans()) {
          std::int32_t& name = name_of_node[static_cast<std::size_t>(s.node)];
          if (name < 0) name = names.number_of(kernel_name(out.program, out.program.node(s.node)));
          out.launches.push_back({static_cast<std::int32_t>(out.steps.size()), s.node, name, -1,
                                  step.start_ns + s.start_ns, step.start_ns + s.end_ns});
        }
        set_span(step, std::span(out.launches).subspan(first));
        step.end_ns = std::max(step.end_ns, step.last_ns);
        out.steps.push_back(step);
        const auto& events = recorder.memory_events();
        out.memory_events.insert(out.memory_events.end(), events.begin(), events.end());
      });
}

// Turns the profiler's records into launches, each of the step during whose call it starts.
void place_activities(Profile& out) {
  out.names = out.trace.names;
  const std::vector<Activity>& activities = out.trace.activities;
  std::size_t next = 0;
  for (std::size_t i = 0; i < out.steps.size(); ++i) {
    ProfiledStep& step = out.steps[i];
    const std::size_t first = out.launches.size();
    while (next < activities.size() && activities[next].start_ns < step.start_ns) ++next;
    for (; next < activities.size() && activities[next].start_ns <= step.end_ns; ++next) {
      const Activity& a = activities[next];
      out.launches.push_back({static_cast<std::int32_t>(i), a.node, a.name,
                              static_cast<std::int32_t>(next), a.start_ns, a.end_ns});
    }
    set_span(step, std::span(out.launches).subspan(first));
  }
}

void record_activities(Executor& executor, Device& device, Measurement& measurement,
                       ActivityTracer& tracer, Profile& out) {
  const int steps = out.spec.protocol.recorded_steps;
  Recorder recorder({.spans = false, .memory = true});
  recorder.reserve(
      0, static_cast<std::size_t>(executor.launches()) * 12 * static_cast<std::size_t>(steps));
  executor.release_outputs();
  {
    Tracing tracing(tracer, executor);
    measurement.step();  // the profiler's own first step, not counted; later ones may replay it
    out.graph_kernels = executor.kernels();
    // A replay has no moments at which single buffers come and go.
    std::optional<Recording> memory;
    if (!out.graph_kernels) memory.emplace(device.allocator(), recorder);
    for (int i = 0; i < steps; ++i) out.steps.push_back({measurement.step()});
    out.trace = tracing.take();
  }
  out.source = out.graph_kernels ? "device profiler inside a graph" : "device profiler";
  out.memory_events = recorder.memory_events();
  if (out.trace.dropped > 0) {
    throw Error(ErrorCode::kFailed, "profile",
                fmt::format("the profiler lost {} records", out.trace.dropped),
                "profile fewer steps or a smaller model");
  }
  place_activities(out);
}

// Makes the device's profiler; nullptr if none is asked for or any rank has none: all ranks record
// in one way, with the same collectives.
std::unique_ptr<ActivityTracer> make_tracer(Device& device, Profile& out) {
  if (!out.spec.use_tracer) return nullptr;
  std::unique_ptr<ActivityTracer> tracer = device.make_activity_tracer(out.problem);
  Communicator* const group = device.group();
  if (group == nullptr || holds_in_all(group->processes(), tracer != nullptr)) return tracer;
  if (tracer != nullptr) out.problem = "another rank has no profiler";
  return nullptr;
}

void profile_on(Device& device, const StopSignal* stop, const std::optional<PlainTimes>& plain,
                Profile& out) {
  Session session(device, out.spec.step);
  fill_for_timing(session);
  Executor& executor = session.executor();
  Measurement measurement(executor, device, stop);
  out.program = executor.program();
  out.turns = executor.buffer_plan().turns;
  if (plain) {
    measurement.warm_up(out.spec.protocol.warmup);
    out.plain = *plain;
  } else {
    out.plain = run_plain(measurement, out.spec);
  }
  const std::unique_ptr<ActivityTracer> tracer = make_tracer(device, out);
  if (tracer != nullptr) {
    record_activities(executor, device, measurement, *tracer, out);
  } else {
    record_spans(measurement, out);
  }
}

// Runs `work` as attempt() does; a budget that no recomputation meets is out of memory too.
Outcome attempt_within_budget(const std::function<void()>& work) {
  try {
    return attempt(work);
  } catch (const BudgetNotMet& error) {
    return {Status::kOutOfMemory, error.what()};
  }
}

}  // namespace

std::string kernel_name(const Program& program, const Node& node) {
  const auto dtype_of = [&](const std::vector<ValueId>& ids) -> std::optional<DType> {
    const auto tensor =
        std::ranges::find_if(ids, [&](ValueId id) { return !program.type(id).shape.empty(); });
    return tensor == ids.end() ? std::nullopt : std::optional(program.type(*tensor).dtype);
  };
  const DType to = dtype_of(node.outputs).value_or(program.type(node.outputs[0]).dtype);
  const DType from = dtype_of(node.inputs).value_or(to);
  if (from == to) return fmt::format("{} {}", node.op->name, name_of(to));
  return fmt::format("{} {}>{}", node.op->name, name_of(from), name_of(to));
}

std::optional<PlainTimes> plain_times(const CellResult& timed) {
  if (timed.status != Status::kOk) return std::nullopt;
  return PlainTimes{.wall_ms = timed.wall_ms,
                    .issue_ms = median_of(timed.issue_samples_ms),
                    .span_ms = timed.device_span_ms,
                    .samples_ms = timed.samples_ms,
                    .warmup_ms = timed.warmup_ms,
                    .host = timed.host};
}

Profile profile_step(const DeviceFactory& make_device, const ProfileSpec& spec,
                     const StopSignal* stop, const std::optional<PlainTimes>& plain) {
  Profile out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.step);
  out.device = device->name();
  out.is_asynchronous = device->is_asynchronous();
  const Outcome outcome = attempt_within_budget([&] { profile_on(*device, stop, plain, out); });
  out.status = outcome.status;
  out.detail = outcome.detail;
  out.lack = outcome.lack;
  if (out.status == Status::kOk) return out;
  out.steps.clear();
  out.launches.clear();
  out.memory_events.clear();
  return out;
}

}  // namespace tracestep

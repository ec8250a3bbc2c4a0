#include "lab/attention/run.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/cost.h"
#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "base/units.h"
#include "lab/measure/statistics.h"
#include "session/session.h"

namespace tracestep {
namespace {

// Values are uniform in [-1, 1).
HostTensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name) {
  const CounterRng rng(seed, name);
  HostTensor out = HostTensor::zeros(type.dtype, type.shape);
  const auto fill = [&rng](auto values, auto&& convert) {
    std::uint64_t index = 0;
    for (auto& x : values) x = convert(2 * rng.uniform(index++) - 1);
  };
  switch (type.dtype) {
    case DType::kF64: fill(out.as<double>(), [](double x) { return x; }); break;
    case DType::kBF16:
      fill(out.as<BF16>(), [](double x) { return to_bf16(static_cast<float>(x)); });
      break;
    case DType::kF16:
      fill(out.as<F16>(), [](double x) { return to_f16(static_cast<float>(x)); });
      break;
    default: fill(out.as<float>(), [](double x) { return static_cast<float>(x); }); break;
  }
  return out;
}

void set_values(Store& store, Executor& executor, std::uint64_t seed) {
  const Program& program = executor.program();
  for (const char* name : {"q", "k", "v", "upstream"}) {
    const HostTensor value = random_tensor(program.type(program.find_leaf(name)), seed, name);
    if (std::string_view(name) == "upstream") {
      executor.set_input(name, value);
    } else {
      store.set(name, value);
    }
  }
}

void count_work(const AttentionProgram& p, AttentionResult& out) {
  const BufferPlan buffer_plan = plan_buffers(p.program);
  for (std::size_t i = 0; i < p.program.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    AttentionPart* part = p.is_forward(id)    ? &out.forward
                          : p.is_backward(id) ? &out.backward
                                              : nullptr;
    if (part == nullptr || !buffer_plan.runs[i]) continue;
    const Node& node = p.program.nodes[i];
    ++part->launches;
    ++out.whole.launches;
    if (is_product(node)) {
      part->flops += cost_of(p.program, node).flops;
      out.whole.flops += cost_of(p.program, node).flops;
    }
  }
}

double ms_between(std::int64_t start_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - start_ns) * 1e-6;
}

// Times the parts of a step by stopping in between.
class PartTimer {
 public:
  PartTimer(Executor& executor, Device& device, const AttentionProgram& p)
      : device_(device), pauses_(executor, [&](RunObserver& observer) {
          observer.pauses = {{p.forward_end, [this] { end_forward(); }},
                             {p.backward_begin, [this] { begin_backward(); }}};
        }) {}

  double forward_ms(const StepTimes& step) const {
    return ms_between(step.start_ns, forward_end_ns_);
  }
  double backward_ms(const StepTimes& step) const {
    return ms_between(backward_begin_ns_, step.end_ns);
  }
  std::int64_t live_bytes() const { return live_bytes_; }  // when forward was done

 private:
  void end_forward() {
    device_.synchronize();
    forward_end_ns_ = now_ns();
    live_bytes_ = device_.allocator().stats().requested_bytes;
  }
  void begin_backward() {
    device_.synchronize();
    backward_begin_ns_ = now_ns();
  }

  Device& device_;
  std::int64_t forward_end_ns_ = 0, backward_begin_ns_ = 0, live_bytes_ = 0;
  const Observation pauses_;
};

void time_parts(Measurement& measurement, const PartTimer& timer, Device& device,
                AttentionResult& out) {
  out.host.before = read_host_facts();
  measurement.warm_up(out.spec.protocol.warmup, [&](const StepTimes& step) {
    out.forward.warmup_ms.push_back(timer.forward_ms(step));
    out.backward.warmup_ms.push_back(timer.backward_ms(step));
  });
  out.facts_before = device.facts();
  const Protocol& protocol = out.spec.protocol;
  double most_seconds = protocol.max_seconds;
  if (protocol.visit_seconds > 0) {
    most_seconds = device.is_asynchronous() ? kAsynchronousVisitSeconds : protocol.visit_seconds;
  }
  const std::int64_t start = now_ns();
  for (int i = 0; i < protocol.steps; ++i) {
    const double seconds = ms_between(start, now_ns()) * 1e-3;
    if (i > 0 && most_seconds > 0 && seconds > most_seconds) break;
    const StepTimes step = measurement.step();
    out.forward.samples_ms.push_back(timer.forward_ms(step));
    out.backward.samples_ms.push_back(timer.backward_ms(step));
  }
  out.before_backward_bytes = timer.live_bytes();
  out.facts_after = device.facts();
  out.host.after = read_host_facts();
}

// Times steps without a stop between the parts, one sample each; as many as for the parts.
void time_whole(Measurement& measurement, AttentionResult& out) {
  measurement.warm_up(
      1, [&](const StepTimes& step) { out.whole.warmup_ms.push_back(step.wall_ms()); });
  for (std::size_t i = 0; i < out.forward.samples_ms.size(); ++i) {
    out.whole.samples_ms.push_back(measurement.step().wall_ms());
  }
}

// Records further steps with a span per kernel and no stop between the parts.
void record_parts(Measurement& measurement, const AttentionProgram& p, AttentionResult& out) {
  measurement.record(out.spec.protocol.recorded_steps,
                     [&](const StepTimes&, const Recorder& recorder) {
                       double forward_ms = 0, backward_ms = 0;
                       for (const Span& span : recorder.spans()) {
                         const double ms = ms_between(span.start_ns, span.end_ns);
                         if (p.is_forward(span.node)) forward_ms += ms;
                         if (p.is_backward(span.node)) backward_ms += ms;
                       }
                       out.forward.recorded_ms.push_back(forward_ms);
                       out.backward.recorded_ms.push_back(backward_ms);
                       out.whole.recorded_ms.push_back(busy_ms_of(recorder.spans()));
                     });
}

constexpr AttentionPart AttentionResult::*kParts[] = {
    &AttentionResult::forward, &AttentionResult::backward, &AttentionResult::whole};

void set_busy(AttentionResult& out) {
  for (const auto part : kParts) {
    if (!(out.*part).recorded_ms.empty()) (out.*part).busy_ms = median_of((out.*part).recorded_ms);
  }
}

// Builds the program and takes from it every figure that is known before anything runs.
AttentionProgram plan(const Device& device, AttentionResult& out) {
  AttentionProgram p = attention_program(out.spec, device);
  count_work(p, out);
  out.saved_bytes = square_bytes_saved(p, out.spec);
  const AttentionBytes bytes = planned_bytes(p, out.spec.run.executor, device);
  out.predicted_before_backward_bytes = bytes.before_backward;
  out.predicted_peak_bytes = bytes.peak;
  return p;
}

// Predicted peaks are exact, so a cell beyond the limit need not be computed until it fails there.
bool exceeds_limit(const AttentionResult& planned) {
  const std::int64_t limit = planned.spec.run.place.memory_limit_bytes;
  return limit > 0 && planned.predicted_peak_bytes > limit;
}

Outcome not_begun(const AttentionResult& planned) {
  return {Status::kOutOfMemory,
          fmt::format("not begun: the predicted peak is {}, the limit {}",
                      format_bytes(planned.predicted_peak_bytes),
                      format_bytes(planned.spec.run.place.memory_limit_bytes))};
}

void measure(const AttentionProgram& p, Device& device, const StopSignal* stop,
             AttentionResult& out) {
  Session session(device, out.spec.run, p.program);
  Executor& executor = session.executor();
  set_values(session.store(), executor, out.spec.run.seed);
  device.synchronize();
  device.allocator().reset_peak();
  Measurement measurement(executor, device, stop);
  time_parts(measurement, PartTimer(executor, device, p), device, out);
  time_whole(measurement, out);
  record_parts(measurement, p, out);
  set_busy(out);
  out.peak_bytes = device.allocator().stats().peak_requested_bytes;
}

}  // namespace

AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop) {
  AttentionResult out;
  out.spec = spec;
  const std::unique_ptr<Device> device = make_device(spec.run);
  out.device = device->name();
  out.computes = device->computes();
  out.is_asynchronous = device->is_asynchronous();
  const AttentionProgram p = plan(*device, out);
  const Outcome outcome =
      exceeds_limit(out) ? not_begun(out) : attempt([&] { measure(p, *device, stop, out); });
  out.status = outcome.status;
  out.detail = outcome.detail;
  if (out.status != Status::kOk) {
    out.forward.samples_ms.clear();
    out.backward.samples_ms.clear();
    out.whole.samples_ms.clear();
  }
  return out;
}

std::vector<double> beside_samples(const AttentionResult& result) {
  return result.status == Status::kOk ? result.whole.samples_ms : std::vector<double>();
}

AttentionResult visit(const DeviceFactory& make_device, const AttentionSpec& spec,
                      const StopSignal* stop) {
  return measure_attention(make_device, spec, stop);
}

void add_visit(AttentionResult& result, const AttentionResult& later) {
  join_visits(result.host, later.host);
  join_visits(result.facts_before, result.facts_after, later.facts_before, later.facts_after);
  const auto count = [](const AttentionResult& r) {
    return static_cast<double>(r.forward.samples_ms.size());
  };
  if (result.visits.empty()) result.visits = {count(result)};
  result.visits.push_back(count(later));
  for (const auto part : kParts) {
    for (const auto list : {&AttentionPart::samples_ms, &AttentionPart::recorded_ms}) {
      std::vector<double>& all = (result.*part).*list;
      const std::vector<double>& more = (later.*part).*list;
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  set_busy(result);
}

double visit_weight(const AttentionSpec& spec) {
  const auto tokens = static_cast<double>(spec.run.shape.context);
  return tokens * tokens * static_cast<double>(spec.run.shape.batch * spec.heads * spec.width);
}

double reached_tflops(const AttentionResult& result) {
  double out = 0;
  for (const AttentionPart* part : {&result.forward, &result.backward, &result.whole}) {
    const double median = part->samples_ms.empty() ? 0 : median_of(part->samples_ms);
    if (median > 0) out = std::max(out, static_cast<double>(part->flops) / median * 1e-9);
  }
  return out;
}

}  // namespace tracestep

#include "lab/measure/parts.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/cost.h"
#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "base/shares.h"
#include "base/units.h"
#include "lab/measure/rounds.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "ops/functions.h"
#include "session/session.h"

namespace tracestep {
namespace {

double ms_between(std::int64_t start_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - start_ns) * 1e-6;
}

void count_work(const PartsProgram& p, PartsResult& out) {
  const BufferPlan buffer_plan = plan_buffers(p.program);
  for (std::size_t i = 0; i < p.program.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    PartTimes* part = p.is_forward(id) ? &out.forward : p.is_backward(id) ? &out.backward : nullptr;
    if (part == nullptr || !buffer_plan.runs[i]) continue;
    const Node& node = p.program.nodes[i];
    const std::int64_t flops = is_product(node) ? cost_of(p.program, node).flops : 0;
    for (PartTimes* one : {part, &out.whole}) {
      ++one->launches;
      one->flops += flops;
    }
  }
}

// Times forward and backward separately, in steps that pause between them until the device is idle.
class PartTimer {
 public:
  PartTimer(const PartsProgram& p, Session& session, Measurement& measurement)
      : p_(p),
        measurement_(measurement),
        clock_(session.executor(), session.device(),
               {p.forward_begin, p.forward_end, p.backward_begin},
               [this, &device = session.device()](std::size_t at) {
                 if (at == kForwardEnd) {
                   live_bytes_ = device.allocator().stats().requested_bytes;
                 }
               }) {}

  void warm_up(int steps, PartsResult& out) {
    measurement_.warm_up(steps, [&](const StepTimes& step) {
      add(step, out.forward.warmup_ms, out.backward.warmup_ms);
    });
  }
  void time_step(PartsResult& out) {
    add(measurement_.step(), out.forward.samples_ms, out.backward.samples_ms);
  }
  std::int64_t live_bytes() const { return live_bytes_; }  // when forward was done

 private:
  static constexpr std::size_t kForwardBegin = 0, kForwardEnd = 1, kBackwardBegin = 2;

  void add(const StepTimes& step, std::vector<double>& forward_ms,
           std::vector<double>& backward_ms) const {
    const std::int64_t begin =
        p_.forward_begin == kNoNode ? step.start_ns : clock_.at_ns(kForwardBegin);
    const std::int64_t end = p_.forward_end == kNoNode ? step.end_ns : clock_.at_ns(kForwardEnd);
    forward_ms.push_back(ms_between(begin, end));
    if (p_.has_backward()) {
      backward_ms.push_back(ms_between(clock_.at_ns(kBackwardBegin), step.end_ns));
    }
  }

  const PartsProgram& p_;
  Measurement& measurement_;
  std::int64_t live_bytes_ = 0;
  const PauseClock clock_;
};

void time_parts(const PartsRequest& request, Session& session, Measurement& measurement,
                PartsResult& out) {
  PartTimer timer(request.program, session, measurement);
  Device& device = session.device();
  const Protocol& protocol = request.protocol;
  out.host.before = read_host_facts();
  timer.warm_up(protocol.warmup, out);
  out.facts_before = device.facts();
  double most_seconds = protocol.max_seconds;
  if (protocol.visit_seconds > 0) {
    most_seconds = device.is_asynchronous() ? kAsynchronousVisitSeconds : protocol.visit_seconds;
  }
  const std::int64_t start = now_ns();
  for (int i = 0; i < protocol.steps; ++i) {
    const double seconds = ms_between(start, now_ns()) * 1e-3;
    const bool has_enough = i >= (protocol.visit_seconds > 0 ? kVisitSamples : 1);
    if (has_enough && most_seconds > 0 && seconds > most_seconds) break;
    timer.time_step(out);
  }
  out.before_backward_bytes = timer.live_bytes();
  out.facts_after = device.facts();
  out.host.after = read_host_facts();
}

// Times whole steps, without a pause between the parts, one sample each; as many as for the parts.
void time_whole(Measurement& measurement, PartsResult& out) {
  measurement.warm_up(
      1, [&](const StepTimes& step) { out.whole.warmup_ms.push_back(step.wall_ms()); });
  for (std::size_t i = 0; i < out.forward.samples_ms.size(); ++i) {
    out.whole.samples_ms.push_back(measurement.step().wall_ms());
  }
}

// Records further steps without a pause between the parts, and adds up their kernels by part.
void record_parts(const PartsRequest& request, Measurement& measurement, PartsResult& out) {
  measurement.record(request.protocol.recorded_steps,
                     [&](const StepTimes&, const Recorder& recorder) {
                       double forward_ms = 0, backward_ms = 0;
                       for (const Span& span : recorder.spans()) {
                         const double ms = ms_between(span.start_ns, span.end_ns);
                         if (request.program.is_forward(span.node)) forward_ms += ms;
                         if (request.program.is_backward(span.node)) backward_ms += ms;
                       }
                       out.forward.recorded_ms.push_back(forward_ms);
                       out.backward.recorded_ms.push_back(backward_ms);
                       out.whole.recorded_ms.push_back(busy_ms_of(recorder.spans()));
                     });
}

constexpr std::uint64_t kFinite8 = 0x7C;  // below it both kinds of float8 are finite numbers

constexpr PartTimes PartsResult::*kParts[] = {&PartsResult::forward, &PartsResult::backward,
                                              &PartsResult::whole};

void set_busy(PartsResult& out) {
  for (const auto part : kParts) {
    if (!(out.*part).recorded_ms.empty()) (out.*part).busy_ms = median_of((out.*part).recorded_ms);
  }
}

void measure(Device& device, const PartsRequest& request, const StopSignal* stop,
             PartsResult& out) {
  Session session(device, request.run, request.program.program);
  request.set_values(session.store(), session.executor());
  device.synchronize();
  device.allocator().reset_peak();
  Measurement measurement(session.executor(), device, stop);
  time_parts(request, session, measurement, out);
  if (request.with_whole) time_whole(measurement, out);
  record_parts(request, measurement, out);
  set_busy(out);
  out.peak_bytes = device.allocator().stats().peak_requested_bytes;
}

}  // namespace

PauseClock::PauseClock(Executor& executor, Device& device, std::vector<NodeId> nodes,
                       std::function<void(std::size_t at)> act)
    : times_ns_(nodes.size()), observation_(executor, [&](RunObserver& observer) {
        for (std::size_t at = 0; at < nodes.size(); ++at) {
          if (nodes[at] == kNoNode) continue;
          observer.pauses.push_back({nodes[at], [this, &device, at, act] {
                                       device.synchronize();
                                       times_ns_[at] = now_ns();
                                       if (act) act(at);
                                     }});
        }
      }) {}

double reached_tflops(const PartsResult& result) {
  double out = 0;
  for (const auto part : kParts) {
    const PartTimes& times = result.*part;
    const double median = times.samples_ms.empty() ? 0 : median_of(times.samples_ms);
    if (median > 0) out = std::max(out, static_cast<double>(times.flops) / median * 1e-9);
  }
  return out;
}

void add_visit(PartsResult& result, const PartsResult& later) {
  join_visits(result.host, later.host);
  join_visits(result.facts_before, result.facts_after, later.facts_before, later.facts_after);
  const auto count = [](const PartsResult& r) {
    return static_cast<double>(r.forward.samples_ms.size());
  };
  if (result.visits.empty()) result.visits = {count(result)};
  result.visits.push_back(count(later));
  for (const auto part : kParts) {
    for (const auto list : {&PartTimes::samples_ms, &PartTimes::recorded_ms}) {
      std::vector<double>& all = (result.*part).*list;
      const std::vector<double>& more = (later.*part).*list;
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  set_busy(result);
}

Program with_upstream_loss(Builder& builder, Val y, Val upstream) {
  {
    const auto scope = builder.scope(kOutsideParts);
    Dims all;
    for (int axis = 0; axis < y.shape().rank(); ++axis) all.push_back(axis);
    builder.output("loss", ops::sum(ops::mul(y, upstream), all));
  }
  return builder.finish();
}

PartsProgram parts_of(Program program) {
  PartsProgram out{.program = std::move(program)};
  const BufferPlan buffer_plan = plan_buffers(out.program);
  bool has_begun = false;
  for (std::size_t i = 0; i < out.program.nodes.size(); ++i) {
    if (!buffer_plan.runs[i]) continue;
    const Origin& origin = out.program.nodes[i].origin();
    const auto id = static_cast<NodeId>(i);
    const bool is_outside = origin.path == kOutsideParts;
    if (!has_begun) {
      has_begun = !is_outside;
      if (has_begun && i > 0) out.forward_begin = id;
    } else if (out.forward_end == kNoNode && is_outside) {
      out.forward_end = id;
    }
    if (out.backward_begin == kNoNode && origin.phase == Phase::kBackward && !is_outside) {
      out.backward_begin = id;
    }
  }
  TRACESTEP_CHECK(
      !out.has_backward() || (out.forward_end != kNoNode && out.backward_begin > out.forward_end),
      "the parts of {} are not in order", out.program.name);
  return out;
}

std::int64_t live_bytes_before(const Program& program, NodeId node) {
  std::int64_t total = 0;
  for (const Buffer& buffer : plan_buffers(program).buffers) {
    const bool is_leaf = buffer.first == kNoNode;
    if (is_leaf || (buffer.first < node && buffer.last >= node)) total += buffer.bytes;
  }
  return total;
}

// Predicts the bytes before backward and at the peak; they are equal if there is an arena.
PartsBytes planned_bytes(const PartsProgram& p, ExecutorKind executor, const Device& device) {
  const std::int64_t peak = predicted_peak_bytes(executor, p.program, device.traits());
  return {has_arena(executor) ? peak : live_bytes_before(p.program, p.forward_end), peak};
}

void measure_parts(Device& device, const PartsRequest& request, const StopSignal* stop,
                   PartsResult& out) {
  out.device = device.name();
  out.computes = device.computes();
  out.is_asynchronous = device.is_asynchronous();
  count_work(request.program, out);
  const PartsBytes bytes = planned_bytes(request.program, request.run.executor, device);
  out.predicted_before_backward_bytes = bytes.before_backward;
  out.predicted_peak_bytes = bytes.peak;
  // Predicted peaks are exact: a cell beyond the limit need not be computed until it fails there.
  const std::int64_t limit = request.run.place.memory_limit_bytes;
  const Outcome outcome =
      limit > 0 && bytes.peak > limit
          ? Outcome{Status::kOutOfMemory,
                    fmt::format("not begun: the predicted peak is {}, the limit {}",
                                format_bytes(bytes.peak), format_bytes(limit))}
          : attempt([&] { measure(device, request, stop, out); });
  out.status = outcome.status;
  out.detail = outcome.detail;
  if (out.status == Status::kOk) return;
  for (const auto part : kParts) (out.*part).samples_ms.clear();
}

HostTensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name,
                         std::int64_t below) {
  const CounterRng rng(seed, name);
  HostTensor out = HostTensor::zeros(type.dtype, type.shape);
  // Billions of values are made by all threads, as a value depends on its index alone.
  const auto each = [](auto values, auto&& value) {
    in_shares(std::ssize(values), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        values[static_cast<std::size_t>(i)] = value(static_cast<std::uint64_t>(i));
      }
    });
  };
  const auto fill = [&](auto values, auto&& convert) {
    each(values, [&](std::uint64_t index) { return convert(2 * rng.uniform(index) - 1); });
  };
  const auto count = [&]<class T>(std::span<T> values) {
    each(values, [&](std::uint64_t index) {
      return static_cast<T>(rng.below(index, static_cast<std::uint64_t>(below)));
    });
  };
  switch (type.dtype) {
    case DType::kF64: fill(out.as<double>(), [](double x) { return x; }); break;
    case DType::kBF16:
      fill(out.as<BF16>(), [](double x) { return to_bf16(static_cast<float>(x)); });
      break;
    case DType::kF16:
      fill(out.as<F16>(), [](double x) { return to_f16(static_cast<float>(x)); });
      break;
    case DType::kF32: fill(out.as<float>(), [](double x) { return static_cast<float>(x); }); break;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      each(std::span(out.bytes),
           [&](std::uint64_t index) { return static_cast<std::byte>(rng.below(index, kFinite8)); });
      break;
    case DType::kI64: count(out.as<std::int64_t>()); break;
    case DType::kI32: count(out.as<std::int32_t>()); break;
    case DType::kU8:
    case DType::kBool: count(out.as<std::uint8_t>()); break;
  }
  return out;
}

}  // namespace tracestep

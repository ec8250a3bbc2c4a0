// Keeps a stack of what is open on each thread: modules, ops, ranges. A gradient belongs to the
// module of the forward op with the same sequence number.
#include "lab/read/host_walk.h"

#include <algorithm>

namespace tracestep {
namespace {

constexpr std::size_t kMostSpans = 1'000'000;
constexpr std::string_view kOptimizerZero = "Optimizer.zero_grad#";
constexpr std::string_view kSystemRanges[] = {
    kProfilerStep, kOptimizerStep, kOptimizerZero, "PyTorch Profiler", "## Call CompiledFxGraph",
    "nccl:",       "gloo:"};

}  // namespace

void RecentSpans::add(std::int64_t start, std::int64_t end) {
  if (!spans_.empty() && start <= spans_.back().end_ns) {
    spans_.back().end_ns = std::max(spans_.back().end_ns, end);
    return;
  }
  if (spans_.size() == kMostSpans) spans_.pop_front();
  spans_.push_back({start, end});
}

std::int64_t RecentSpans::within(std::int64_t from, std::int64_t to) const {
  std::int64_t out = 0;
  auto at = std::ranges::upper_bound(spans_, from, {}, &TimeSpan::end_ns);
  for (; at != spans_.end() && at->start_ns < to; ++at) {
    out += std::min(to, at->end_ns) - std::max(from, at->start_ns);
  }
  return out;
}

void RecentSpans::forget(std::int64_t before) {
  while (!spans_.empty() && spans_.front().end_ns <= before) spans_.pop_front();
}

HostWalk::HostWalk(const TraceFacts& facts, TraceTimes& times)
    : from_(facts), times_(times), threads_(facts.threads), forward_(facts.ring_size()) {}

HostPlace HostWalk::enter(const TraceEvent& event) {
  std::vector<Open>& open = threads_[event.thread];
  close(open, event.start_ns);
  if (!from_.is_of_device()) close_steps(event.start_ns);
  note_spans(event);
  const std::int64_t length = event.end_ns - event.start_ns;
  // A call that begins in an op may end after it: only the time that both share is taken from the
  // op's own time.
  const auto in = [&](const Open& outer) {
    return std::min(event.end_ns, outer.event.end_ns) - event.start_ns;
  };
  for (std::size_t i = open.size(); i-- > 0;) {
    if (open[i].event.kind == EventKind::kModule) continue;
    if (event.kind != EventKind::kModule) open[i].own_ns -= in(open[i]);
    break;
  }
  for (std::size_t i = open.size(); event.kind == EventKind::kOp && i-- > 0;) {
    if (open[i].event.kind != EventKind::kOp) continue;
    open[i].work_ns -= in(open[i]);
    break;
  }
  const HostPlace place = place_in(open.empty() ? HostPlace{} : open.back().place, event);
  open.push_back({event, place, length, length});
  return place;
}

void HostWalk::finish() {
  for (std::vector<Open>& open : threads_) close(open, INT64_MAX);
  if (!from_.is_of_device()) close_steps(INT64_MAX);
}

void HostWalk::close(std::vector<Open>& open, std::int64_t until) {
  while (!open.empty() && open.back().event.end_ns <= until) {
    const Open& done = open.back();
    const TraceEvent& event = done.event;
    if (event.kind != EventKind::kModule) {
      OpTimes& op = times_.ops[event.name];
      ++op.calls;
      op.total_ns += static_cast<double>(event.end_ns - event.start_ns);
      op.own_ns += static_cast<double>(done.own_ns);
    }
    if (event.kind == EventKind::kOp && !from_.is_of_device()) {
      add_piece({.start_ns = event.start_ns,
                 .end_ns = event.end_ns,
                 .own_ns = done.work_ns,
                 .name = event.name,
                 .place = done.place,
                 .step = times_.steps.at(event.start_ns),
                 .work = class_of(event.name, done.place.pass)},
                false, times_);
    }
    open.pop_back();
  }
}

// Adds the time outside of ops and calls, by cause (data, Python), to the steps that have ended.
void HostWalk::close_steps(std::int64_t until) {
  const Intervals& steps = times_.steps.spans;
  for (; closed_steps_ < steps.size() && steps[closed_steps_].end_ns <= until; ++closed_steps_) {
    const TimeSpan& step = steps[closed_steps_];
    const std::int64_t busy = busy_.within(step.start_ns, step.end_ns);
    const std::int64_t idle = std::max<std::int64_t>(0, step.end_ns - step.start_ns - busy);
    const std::int64_t for_data = std::min(idle, loading_.within(step.start_ns, step.end_ns));
    const auto number = static_cast<std::int32_t>(closed_steps_);
    if (for_data > 0) times_.parts.times(PartLevel::kGap, GapCause::kLoading).add(number, for_data);
    times_.parts.times(PartLevel::kGap, GapCause::kPython).add(number, idle - for_data);
    forget(step.end_ns);
  }
}

void HostWalk::forget(std::int64_t before) {
  for (RecentSpans* spans : {&waits_, &loading_, &busy_}) spans->forget(before);
}

void HostWalk::note_spans(const TraceEvent& event) {
  const NameFacts& facts = facts_of(event.name);
  const bool is_call = event.kind == EventKind::kCall;
  if (is_call && facts.is_wait) waits_.add(event.start_ns, event.end_ns);
  if (event.kind == EventKind::kRange && facts.is_loading) {
    loading_.add(event.start_ns, event.end_ns);
  }
  if (is_call || event.kind == EventKind::kOp) busy_.add(event.start_ns, event.end_ns);
}

HostPlace HostWalk::place_in(HostPlace place, const TraceEvent& event) {
  const NameFacts& facts = facts_of(event.name);
  if (event.kind == EventKind::kModule) place.module = inner(place.module, event.name);
  if (event.kind == EventKind::kRange && facts.is_optimizer) {
    place.pass = TracePass::kOptimizer;
    place.module = 0;
  } else if (event.kind == EventKind::kRange && !from_.has_modules() && !facts.is_system) {
    place.module = inner(place.module, event.name);
  }
  if (event.kind != EventKind::kOp) return place;
  place.op = event.name;
  Forward& forward = forward_[event.link % forward_.size()];
  if (event.is_gradient || facts.is_engine) {
    place.pass = TracePass::kBackward;
    if (event.link != kNoNumber && forward.sequence == event.link) place.module = forward.module;
  } else if (event.link != kNoNumber && place.pass == TracePass::kForward &&
             forward.sequence != event.link) {
    forward = {event.link, place.module};
  }
  return place;
}

std::uint32_t HostWalk::inner(std::uint32_t outer, std::uint32_t label) {
  const auto [found, is_new] = inner_.try_emplace(std::pair(outer, label), 0);
  if (is_new) {
    const std::string& before = times_.paths[outer];
    const std::string& name = from_.names[label];
    found->second = times_.paths.number_of(before.empty() ? name : before + "/" + name);
  }
  return found->second;
}

const HostWalk::NameFacts& HostWalk::facts_of(std::uint32_t number) {
  if (names_.size() <= number) names_.resize(from_.names.size());
  NameFacts& out = names_[number];
  if (out.is_known) return out;
  const std::string_view name = from_.names[number];
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  out.is_known = true;
  out.is_loading = has("DataLoader");
  out.is_wait = has("Synchronize");
  out.is_graph_launch = has("GraphLaunch");
  out.is_engine = name.starts_with("autograd::engine::evaluate_function");
  out.is_optimizer = name.starts_with(kOptimizerStep) || name.starts_with(kOptimizerZero);
  out.is_system = out.is_loading || std::ranges::any_of(kSystemRanges, [&](auto known) {
                    return name.starts_with(known);
                  });
  out.work = work_class_of(name);
  return out;
}

bool HostWalk::is_graph_launch(std::uint32_t name) {
  return facts_of(name).is_graph_launch;
}

WorkClass HostWalk::class_of(std::uint32_t name, TracePass pass) {
  const WorkClass work = facts_of(name).work;
  // The optimizer's own kernels are elementwise ones like any others.
  return pass == TracePass::kOptimizer && work == WorkClass::kMemoryBound ? WorkClass::kOptimizer
                                                                          : work;
}

}  // namespace tracestep

#include "lab/memory/run.h"

#include <algorithm>
#include <chrono>

#include "analysis/cost.h"
#include "base/indexed.h"
#include "lab/measure/statistics.h"
#include "passes/pipeline.h"
#include "passes/recompute_budget.h"
#include "session/session.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

bool is_block(const MemoryEvent& e) {
  return e.action == MemoryAction::kAlloc || e.action == MemoryAction::kFree;
}

std::int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Returns for each node the index of its workspace among the map's buffers; -1: it has none. The
// map lists workspaces after the planned buffers, in the order of the nodes.
std::vector<int> workspaces_of(const MemoryRun& run) {
  std::vector<int> out(run.program.nodes.size(), -1);
  for (std::size_t b = run.buffer_plan.buffers.size(); b < run.map.buffers.size(); ++b) {
    out[at(run.map.buffers[b].first)] = static_cast<int>(b);
  }
  return out;
}

// Finds for each recorded block the planned buffer in it. A node requests its buffers in the plan's
// order and then its workspace; a request outside a step is a leaf, identified by its name.
class Matcher {
 public:
  explicit Matcher(MemoryRun& run)
      : run_(run), workspaces_(workspaces_of(run)), asked_(run.program.nodes.size(), 0) {}

  void match() {
    for (std::size_t i = 0; i < run_.events.size(); ++i) {
      const MemoryEvent& e = run_.events[i];
      if (e.action == MemoryAction::kAlloc) {
        open_[e.address] = run_.holdings.size();
        run_.holdings.push_back({buffer_of(e), i, {}, e.requested_bytes, e.rounded_bytes});
      } else if (e.action == MemoryAction::kFree) {
        const auto found = open_.find(e.address);
        if (found == open_.end()) continue;
        run_.holdings[found->second].free = i;
        open_.erase(found);
      }
    }
  }

 private:
  int buffer_of(const MemoryEvent& e) {
    if (e.node < 0) return leaf_buffer(e.address);
    const std::vector<int>& planned = run_.buffer_plan.allocated_at[at(e.node)];
    const std::size_t k = asked_[at(e.node)]++;
    if (k < planned.size()) return planned[k];
    return k == planned.size() ? workspaces_[at(e.node)] : -1;
  }

  int leaf_buffer(std::uint64_t address) const {
    const auto name = run_.leaf_at.find(address);
    const ValueId leaf =
        name == run_.leaf_at.end() ? kNoValue : run_.program.find_leaf(name->second);
    return leaf == kNoValue ? -1 : run_.buffer_plan.buffer_of[at(leaf)];
  }

  MemoryRun& run_;
  std::vector<int> workspaces_;
  std::vector<std::size_t> asked_;  // by node: blocks so far
  std::map<std::uint64_t, std::size_t> open_;
};

// Finds each node's fullest moment; walks the nodes and the events of the step side by side.
void find_moments(MemoryRun& run) {
  const auto& nodes = run.program.nodes;
  std::vector<std::int64_t> predicted(nodes.size() + 1, 0);
  for (const MappedBuffer& b : run.map.buffers) {
    if (b.first == kNoNode) continue;
    predicted[at(b.first)] += b.bytes;
    if (at(b.last) < nodes.size()) predicted[at(b.last) + 1] -= b.bytes;
  }
  std::int64_t live_predicted = run.map.leaf_bytes;
  std::size_t i = run.step_begin;
  std::int64_t live = i > 0 ? run.events[i - 1].live_requested_bytes : 0;
  std::int64_t time = run.step_begin_ns;
  const auto take = [&](auto&& wanted) {
    while (i < run.events.size() && (!is_block(run.events[i]) || wanted(run.events[i]))) {
      if (is_block(run.events[i])) live = run.events[i].live_requested_bytes;
      time = run.events[i].time_ns;
      ++i;
    }
  };
  const std::vector<int> workspaces = workspaces_of(run);
  if (run.oom && run.oom->node == kNoNode) return;  // before the first node
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    live_predicted += predicted[n];
    if (!run.buffer_plan.runs[n]) continue;
    take([&](const MemoryEvent& e) {
      return e.action == MemoryAction::kAlloc && e.node == static_cast<NodeId>(n);
    });
    run.moments.push_back({static_cast<NodeId>(n), i > 0 ? i - 1 : 0, live, live_predicted,
                           time - run.step_begin_ns});
    if (run.oom && run.oom->node == static_cast<NodeId>(n)) break;
    std::size_t frees = run.buffer_plan.freed_after[n].size() + (workspaces[n] >= 0 ? 1 : 0);
    take([&](const MemoryEvent& e) { return e.action == MemoryAction::kFree && frees-- > 0; });
  }
}

std::map<std::uint64_t, std::string> leaves_in(const std::vector<LiveAllocation>& live) {
  std::map<std::uint64_t, std::string> out;
  for (const LiveAllocation& block : live) {
    if (block.tag.node < 0) out[block.address] = std::string(block.tag.label);
  }
  return out;
}

class Runner {
 public:
  Runner(Device& device, MemoryRun& run) : device_(device), run_(run) {
    recording_.emplace(device_.allocator(), recorder_);
  }

  void go() {
    run_.clock_to_unix_ns = unix_ns() - now_ns();
    Session session(device_, run_.spec.step, run_.program);
    Executor& executor = session.executor();
    recorder_.reserve(0, run_.program.nodes.size() * 8);
    fill_for_timing(session);
    run_.leaf_at = leaves_in(device_.allocator().live());
    Measurement measurement(executor, device_);
    warm_up(executor, measurement);
    record_step(measurement);
    take_events();
    recording_.reset();
    if (run_.spec.times && device_.computes()) time_nodes(measurement);
    if (run_.spec.protocol.steps > 0 && device_.computes()) measure_cost(measurement);
    executor.release_outputs();
  }

  // Takes the recorder's events; of a failed step, those up to the failure.
  void take_events() {
    const bool failed_early = step_begin_ == SIZE_MAX;
    const std::size_t begin = failed_early ? warmup_begin_ : step_begin_;
    const auto& all = recorder_.memory_events();
    run_.step_begin = SIZE_MAX;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == begin) run_.step_begin = run_.events.size();
      const bool is_warm_up = i >= warmup_begin_ && i < begin && is_block(all[i]);
      if (!is_warm_up) run_.events.push_back(all[i]);
      if (all[i].action == MemoryAction::kOom) break;
    }
    run_.step_begin = std::min(run_.step_begin, run_.events.size());
  }

 private:
  void warm_up(Executor& executor, Measurement& measurement) {
    warmup_begin_ = recorder_.memory_events().size();
    measurement.warm_up(run_.spec.protocol.warmup);
    executor.release_outputs();
    device_.synchronize();
    step_begin_ = recorder_.memory_events().size();
  }

  void record_step(Measurement& measurement) {
    device_.allocator().reset_peak();
    run_.step_begin_ns = now_ns();  // known also when memory runs out in the step
    const StepTimes times = measurement.step();
    run_.step_begin_ns = times.start_ns;
    run_.step_end_ns = times.end_ns;
    run_.peak_bytes = device_.allocator().stats().peak_requested_bytes;
    run_.peak_reserved_bytes = device_.allocator().stats().peak_reserved_bytes;
    run_.host_bytes = device_.host_bytes();
  }

  void time_nodes(Measurement& measurement) {
    Recorder spans({.spans = true});
    measurement.step(&spans);
    run_.node_ns.assign(run_.program.nodes.size(), 0);
    for (const Span& s : spans.spans()) {
      if (s.node >= 0) run_.node_ns[at(s.node)] += s.end_ns - s.start_ns;
    }
  }

  // Times steps with and without recording in turn, so that a drift of the machine affects both.
  void measure_cost(Measurement& measurement) {
    std::vector<double> plain, recorded;
    Recorder events({.memory = true});
    events.reserve(0, run_.program.nodes.size() * 8);
    for (int i = 0; i < run_.spec.protocol.steps; ++i) {
      plain.push_back(measurement.step().wall_ms());
      events.clear();
      const Recording recording(device_.allocator(), events);
      recorded.push_back(measurement.step().wall_ms());
    }
    run_.step_ms = median_of(plain);
    run_.recorded_step_ms = median_of(recorded);
    run_.event_ns = event_cost_ns();
  }

  // Measures the time of a clock reading and an append, which is what recording adds per event.
  static double event_cost_ns() {
    constexpr int kEvents = 100'000;
    Recorder events({.memory = true});
    events.reserve(0, kEvents);
    const std::int64_t start = now_ns();
    for (int i = 0; i < kEvents; ++i) events.add(MemoryEvent{.time_ns = now_ns()});
    return static_cast<double>(now_ns() - start) / kEvents;
  }

  Device& device_;
  MemoryRun& run_;
  Recorder recorder_{{.memory = true}};
  std::optional<Recording> recording_;  // until the recorded step is over
  std::size_t warmup_begin_ = SIZE_MAX, step_begin_ = SIZE_MAX;
};

void plan(PipelineResult passes, const DeviceTraits& traits, MemoryRun& run) {
  run.program = std::move(passes.program);
  for (PassReport& report : passes.reports) {
    if (report.name == "recompute") run.recompute_note = std::move(report.note);
  }
  run.traits = traits;
  run.buffer_plan = plan_buffers(run.program);
  run.map = map_memory(run.program, traits);
  run.predicted_peak_bytes = run.map.peak_bytes;
  if (has_arena(run.spec.step.executor)) {
    run.plan = plan_step(run.program, traits);
    run.predicted_peak_bytes = run.plan->peak_bytes();
  }
  run.parameters = parameter_count(run.program);
}

OutOfMemoryState state_of(const OutOfMemory& e, const MemoryRun& run, Device& device) {
  OutOfMemoryState out{.requested_bytes = e.requested_bytes(),
                       .limit_bytes = e.limit_bytes(),
                       .reserved_bytes = device.allocator().stats().reserved_bytes,
                       .on_host = device.traits().has_own_memory() && e.lack().is_on_host,
                       .live = e.live(),
                       .message = e.what()};
  for (const MemoryEvent& event : run.events) {
    if (event.action != MemoryAction::kOom) continue;
    out.node = event.node;
    out.category = event.category;
  }
  return out;
}

}  // namespace

MemoryRun predict_memory(const RunSpec& spec, const DeviceTraits& traits) {
  MemoryRun run;
  run.spec.step = spec;
  run.computes = false;
  plan(step_passes(spec, traits), traits, run);
  find_moments(run);
  return run;
}

void add_program(MemoryRun& run, const DeviceTraits& traits) {
  if (run.has_program() || run.parameters == 0 || !run.measured) return;
  MemoryRun same = predict_memory(run.spec.step, traits);
  run.program = std::move(same.program);
  run.recompute_note = std::move(same.recompute_note);
  run.traits = same.traits;
  run.buffer_plan = std::move(same.buffer_plan);
  run.map = std::move(same.map);
  run.plan = std::move(same.plan);
}

MemoryRun run_beyond_budget(const RunSpec& spec, const BudgetNotMet& error) {
  MemoryRun run;
  run.spec.step = spec;
  run.status = Status::kOutOfMemory;
  run.detail = error.what();
  run.computes = false;
  run.predicted_peak_bytes = error.least_peak_bytes();
  run.parameters = parameter_count(forward_program(spec));
  return run;
}

MemoryRun run_memory(const DeviceFactory& make_device, const MemoryRunSpec& spec) {
  MemoryRun run;
  run.spec = spec;
  run.measured = true;
  const std::unique_ptr<Device> device = make_device(spec.step);
  run.device = device->name();
  run.computes = device->computes();
  plan(step_passes(spec.step, *device), device->traits(), run);
  Runner runner(*device, run);
  run.host.before = read_host_facts();
  run.status = attempt([&] { runner.go(); },
                       [&](const OutOfMemory& e) {
                         runner.take_events();
                         run.leaf_at = leaves_in(e.live());
                         run.oom = state_of(e, run, *device);
                       })
                   .status;
  run.host.after = read_host_facts();
  Matcher(run).match();
  find_moments(run);
  return run;
}

std::vector<std::string> surprises(const MemoryRun& run) {
  std::vector<std::string> out;
  std::vector<int> seen(run.map.buffers.size(), 0);
  const auto end = static_cast<NodeId>(run.program.nodes.size());
  for (const Holding& h : run.holdings) {
    const MemoryEvent& event = run.events[h.alloc];
    const MappedBuffer* b = run.buffer(h);
    if (b == nullptr) {
      out.push_back(fmt::format("{} bytes at {:#x} that nobody predicted, asked for by {}",
                                h.requested_bytes, event.address,
                                event.node < 0 ? "no node" : fmt::format("node {}", event.node)));
      continue;
    }
    ++seen[static_cast<std::size_t>(h.buffer)];
    if (b->bytes != h.requested_bytes) {
      out.push_back(fmt::format("{} {} has {} bytes, predicted {}", b->path, b->op,
                                h.requested_bytes, b->bytes));
    }
    if (h.free.has_value() != (b->last < end)) {
      out.push_back(fmt::format("{} {} is {} the step", b->path, b->op,
                                h.free ? "freed before the end of" : "still there after"));
    }
    if (event.category != b->category) {
      out.push_back(fmt::format("{} {} is tagged {}, predicted {}", b->path, b->op,
                                name_of(event.category), name_of(b->category)));
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const MappedBuffer& b = run.map.buffers[i];
    if (seen[i] == 1 || b.bytes == 0) continue;
    out.push_back(fmt::format("{} {} was predicted and asked for {} times", b.path, b.op, seen[i]));
  }
  return out;
}

}  // namespace tracestep

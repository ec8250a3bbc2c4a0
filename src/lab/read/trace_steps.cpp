// Finds steps that nothing marks by an op between whose calls the same ops always run. Of several
// such ops, the one that is called least often is at the boundary of whole steps and not of layers.
#include "lab/read/trace_steps.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace tracestep {
namespace {

constexpr std::size_t kMostRepeatsRead = 2'000'000;  // ops
constexpr std::size_t kLeastRepeats = 3;
constexpr std::size_t kMostTried = 200;  // ops that may begin a step
constexpr double kLeastAlike = 0.8;      // of the spans between its calls

// Hashes a name; sums of hashes tell whether two spans hold the same names.
std::uint64_t hash_of(std::uint32_t name) {
  std::uint64_t x = (name + 1) * std::uint64_t{0x9E3779B97F4A7C15};
  x = (x ^ (x >> 32)) * std::uint64_t{0xD6E8FEB86659FD93};
  return x ^ (x >> 32);
}

struct Calls {
  std::uint32_t name;
  std::vector<std::size_t> places = {};  // in the sequence
};

struct Sequence {
  std::vector<std::int64_t> starts;
  std::vector<std::uint32_t> names;
};

// Returns the ops of one host thread in order: of the threads that ran a tenth of all ops, the one
// that begins first. Without ops it takes calls, and without calls kernels.
Sequence sequence_of(const TraceFacts& facts, EventOrder& events) {
  EventKind kind = EventKind::kKernel;
  if (facts.count(EventKind::kCall) > 0) kind = EventKind::kCall;
  if (facts.count(EventKind::kOp) > 0) kind = EventKind::kOp;
  std::map<std::uint32_t, Sequence> by_thread;
  std::size_t read = 0;
  events.for_each([&](const TraceEvent& event) {
    if (event.kind != kind || read++ >= kMostRepeatsRead) return;
    Sequence& of = by_thread[event.thread];
    of.starts.push_back(event.start_ns);
    of.names.push_back(event.name);
  });
  Sequence* first = nullptr;
  for (auto& [thread, sequence] : by_thread) {
    const bool is_busy = 10 * sequence.starts.size() >= std::min(read, kMostRepeatsRead);
    if (!is_busy) continue;
    if (first == nullptr || sequence.starts.front() < first->starts.front()) first = &sequence;
  }
  return first == nullptr ? Sequence{} : std::move(*first);
}

// Returns the share of the spans between an op's calls that hold the most frequent set of ops.
double share_alike(const Calls& calls, const std::vector<std::uint64_t>& sums) {
  std::unordered_map<std::uint64_t, std::size_t> spans;
  std::size_t most = 0;
  for (std::size_t i = 1; i < calls.places.size(); ++i) {
    most = std::max(most, ++spans[sums[calls.places[i]] - sums[calls.places[i - 1]]]);
  }
  return static_cast<double>(most) / static_cast<double>(calls.places.size() - 1);
}

TraceSteps steps_by_repeats(const TraceFacts& facts, EventOrder& events) {
  TraceSteps out{.spans = {{facts.first_ns, facts.last_ns}}};
  const Sequence sequence = sequence_of(facts, events);
  std::unordered_map<std::uint32_t, Calls> by_name;
  std::vector<std::uint64_t> sums{0};  // of what stands before each place, in any order
  for (std::size_t i = 0; i < sequence.names.size(); ++i) {
    const std::uint32_t name = sequence.names[i];
    by_name.try_emplace(name, Calls{name}).first->second.places.push_back(i);
    sums.push_back(sums.back() + hash_of(name));
  }
  std::vector<const Calls*> candidates;
  for (const auto& [name, calls] : by_name) {
    if (calls.places.size() >= kLeastRepeats) candidates.push_back(&calls);
  }
  std::ranges::sort(candidates, {}, [](const Calls* calls) {
    return std::pair(calls->places.size(), calls->places.front());
  });
  if (candidates.size() > kMostTried) candidates.resize(kMostTried);
  for (const Calls* calls : candidates) {
    if (share_alike(*calls, sums) < kLeastAlike) continue;
    out.marks = StepMarks::kRepeats;
    out.mark = facts.names[calls->name];
    out.spans.clear();
    for (const std::size_t place : calls->places) {
      const std::int64_t start = sequence.starts[place];
      if (!out.spans.empty()) out.spans.back().end_ns = start;
      out.spans.push_back({start, facts.last_ns});
    }
    break;
  }
  return out;
}

}  // namespace

std::int32_t TraceSteps::at(std::int64_t moment) const {
  const auto after = std::ranges::upper_bound(spans, moment, {}, &TimeSpan::start_ns);
  if (after == spans.begin()) return -1;
  const auto found = after - 1;
  const bool is_in = moment < found->end_ns || marks == StepMarks::kNone;
  return is_in ? static_cast<std::int32_t>(found - spans.begin()) : -1;
}

TraceSteps steps_of(const TraceFacts& facts, EventOrder& events) {
  TraceSteps out;
  if (!facts.profiled.empty()) {
    out.marks = StepMarks::kProfiler;
    out.spans = facts.profiled;
    // A step lasts until the next one begins: what lies between is its own.
    for (std::size_t i = 1; i < out.spans.size(); ++i) {
      out.spans[i - 1].end_ns = out.spans[i].start_ns;
    }
    return out;
  }
  if (facts.optimized.empty()) return steps_by_repeats(facts, events);
  out.marks = StepMarks::kOptimizer;
  std::int64_t from = facts.first_ns;
  for (const TimeSpan& span : facts.optimized) {
    if (span.end_ns > from) out.spans.push_back({from, span.end_ns});
    from = std::max(from, span.end_ns);
  }
  return out;
}

}  // namespace tracestep

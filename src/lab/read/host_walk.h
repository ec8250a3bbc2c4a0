// Walks through the host's events of a recording in the order of time: knows what is open on each
// thread when a call begins, and what the host did in a span of time.
#pragma once

#include <deque>

#include "lab/read/trace_times.h"

namespace tracestep {

// A union of recent spans, which are added in the order of their begin; old ones may be dropped.
class RecentSpans {
 public:
  void add(std::int64_t start, std::int64_t end);
  // The length of the part of [from, to) that the spans cover.
  std::int64_t within(std::int64_t from, std::int64_t to) const;
  void forget(std::int64_t before);

 private:
  std::deque<TimeSpan> spans_;
};

class HostWalk {
 public:
  HostWalk(const TraceFacts& facts, TraceTimes& times);

  // Processes the host's next event, and returns its place in the program.
  HostPlace enter(const TraceEvent& event);
  // Ends the walk: closes and counts what is still open.
  void finish();

  bool is_graph_launch(std::uint32_t name);
  WorkClass class_of(std::uint32_t name, TracePass pass);
  void forget(std::int64_t before);
  // The spans in which the host waited for the device, waited for data, or was in any op or call.
  const RecentSpans& waits() const { return waits_; }
  const RecentSpans& loading() const { return loading_; }
  const RecentSpans& busy() const { return busy_; }

 private:
  struct NameFacts {
    bool is_known = false;
    bool is_loading = false, is_wait = false, is_graph_launch = false, is_engine = false;
    bool is_optimizer = false, is_system = false;
    WorkClass work = WorkClass::kMemoryBound;
  };
  struct Open {
    TraceEvent event;
    HostPlace place;
    std::int64_t own_ns = 0;   // The time of it outside of the ops, ranges and calls in it.
    std::int64_t work_ns = 0;  // The time of it outside of the ops in it.
  };
  struct Forward {
    std::uint32_t sequence = kNoNumber, module = 0;
  };

  const NameFacts& facts_of(std::uint32_t name);
  HostPlace place_in(HostPlace outer, const TraceEvent& event);
  std::uint32_t inner(std::uint32_t outer, std::uint32_t label);
  void note_spans(const TraceEvent& event);
  void close(std::vector<Open>& open, std::int64_t until);
  void close_steps(std::int64_t until);

  const TraceFacts& from_;
  TraceTimes& times_;
  std::vector<std::vector<Open>> threads_;
  std::vector<NameFacts> names_;
  // The latest forward op for each value of a sequence number's last bits.
  std::vector<Forward> forward_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> inner_;
  RecentSpans waits_, loading_, busy_;
  std::size_t closed_steps_ = 0;  // The number of finished steps, for a recording without a device.
};

// Adds a piece of work to the times of its step.
void add_piece(const WorkPiece& piece, bool is_of_device, TraceTimes& times);

}  // namespace tracestep

#include "lab/snapshots/snapshot.h"

#include <algorithm>
#include <map>

#include "ir/op_def.h"

namespace tracestep {
namespace {

class Maker {
 public:
  Maker(const MemoryRun& run, MemorySnapshot& out)
      : run_(run), out_(out), stack_of_buffer_(run.map.buffers.size(), -1) {
    for (std::size_t i = 0; i < run.holdings.size(); ++i) {
      const Holding& h = run.holdings[i];
      holding_[h.alloc] = i;
      if (h.free) holding_[*h.free] = i;
    }
  }

  void make() {
    for (std::size_t i = 0; i < run_.events.size(); ++i) add(i);
    segments();
    annotations();
    settings();
  }

 private:
  std::int64_t unix_us(std::int64_t time_ns) const {
    return (time_ns + run_.clock_to_unix_ns) / 1000;
  }

  // A stack, innermost first: the scope with the line that asked, the op, the phase, the program.
  std::vector<SnapshotFrame> frames(const MappedBuffer& b) const {
    std::vector<SnapshotFrame> out;
    if (b.first == kNoNode) {
      out = {{"", b.path, 0}, {"", b.op, 0}, {"", "before the step", 0}};
    } else {
      const Origin& origin = run_.program.node(b.first).origin();
      out = {{origin.file, b.path.empty() ? "program" : b.path, origin.line},
             {"", b.op, 0},
             {"", std::string(name_of(b.phase)), 0}};
    }
    out.push_back({"", run_.program.name, 0});
    return out;
  }

  int stack_of(const Holding& h) {
    if (h.buffer < 0) return stack_of_stranger(run_.events[h.alloc].node);
    int& stack = stack_of_buffer_[static_cast<std::size_t>(h.buffer)];
    if (stack < 0) stack = add_stack(frames(*run_.buffer(h)));
    return stack;
  }

  int stack_of_stranger(NodeId node) {
    const std::string where = node == kNoNode ? "no node" : run_.program.node(node).origin().path;
    return add_stack({{"", where, 0}, {"", "not predicted", 0}});
  }

  int add_stack(std::vector<SnapshotFrame> frames) {
    out_.stacks.push_back(std::move(frames));
    return static_cast<int>(out_.stacks.size()) - 1;
  }

  void add(std::size_t i) {
    const MemoryEvent& e = run_.events[i];
    SnapshotEvent event{.address = static_cast<std::int64_t>(e.address),
                        .bytes = e.requested_bytes,
                        .time_us = unix_us(e.time_ns)};
    switch (e.action) {
      case MemoryAction::kAlloc:
        event.action = "alloc";
        event.category = name_of(e.category);
        event.stack = stack_of(run_.holdings[holding_.at(i)]);
        out_.events.push_back(event);
        break;
      case MemoryAction::kFree:
        event.stack = stack_of(run_.holdings[holding_.at(i)]);
        for (const char* action : {"free_requested", "free_completed"}) {
          event.action = action;
          out_.events.push_back(event);
        }
        break;
      case MemoryAction::kSegmentAlloc:
      case MemoryAction::kSegmentFree:
        event.action = e.action == MemoryAction::kSegmentAlloc ? "segment_alloc" : "segment_free";
        event.bytes = e.rounded_bytes;
        // Viewers that draw categories fail if no event has the category "unknown".
        if (e.action == MemoryAction::kSegmentAlloc) event.category = "unknown";
        out_.events.push_back(event);
        break;
      case MemoryAction::kOom:
        event.action = "oom";
        event.address =
            std::max<std::int64_t>(0, run_.oom && run_.oom->limit_bytes > 0
                                          ? run_.oom->limit_bytes - e.live_requested_bytes
                                          : 0);
        out_.events.push_back(event);
        break;
    }
  }

  // Derives the segments and blocks at the end from the events.
  void segments() {
    std::map<std::uint64_t, SnapshotSegment> segments;
    for (const MemoryEvent& e : run_.events) {
      if (e.action == MemoryAction::kSegmentAlloc) {
        segments[e.address] = {.address = static_cast<std::int64_t>(e.address),
                               .bytes = e.rounded_bytes,
                               .is_small = true,
                               .blocks = {}};
      } else if (e.action == MemoryAction::kSegmentFree) {
        segments.erase(e.address);
      } else if (e.action == MemoryAction::kAlloc && e.rounded_bytes > kMaxSmallBytes) {
        std::prev(segments.upper_bound(e.address))->second.is_small = false;
      }
    }
    std::map<std::uint64_t, const Holding*> live;
    for (const Holding& h : run_.holdings) {
      if (!h.free) live[run_.events[h.alloc].address] = &h;
    }
    for (const auto& [address, h] : live) {
      SnapshotSegment& s = std::prev(segments.upper_bound(address))->second;
      fill_up(s, static_cast<std::int64_t>(address));
      s.blocks.push_back({static_cast<std::int64_t>(address), h->rounded_bytes, h->requested_bytes,
                          true, stack_of(*h)});
    }
    for (auto& [address, s] : segments) {
      fill_up(s, s.address + s.bytes);
      out_.segments.push_back(std::move(s));
    }
  }

  // Adds a free block up to `address`, if there is room.
  static void fill_up(SnapshotSegment& s, std::int64_t address) {
    const std::int64_t end =
        s.blocks.empty() ? s.address : s.blocks.back().address + s.blocks.back().bytes;
    if (end < address) s.blocks.push_back({end, address - end, 0, false, 0});
  }

  void annotations() {
    for (std::size_t i = 0; i < run_.moments.size(); ++i) {
      const auto phase = [&](std::size_t m) {
        return run_.program.node(run_.moments[m].node).origin().phase;
      };
      if (i > 0 && phase(i) == phase(i - 1)) continue;
      const std::int64_t time = unix_us(run_.moments[i].time_ns + run_.step_begin_ns);
      if (i > 0) out_.annotations.push_back({std::string(name_of(phase(i - 1))), false, time});
      out_.annotations.push_back({std::string(name_of(phase(i))), true, time});
    }
    if (run_.moments.empty()) return;
    const Moment& last = run_.moments.back();
    out_.annotations.push_back(
        {std::string(name_of(run_.program.node(last.node).origin().phase)), false,
         unix_us(std::max(run_.step_end_ns, last.time_ns + run_.step_begin_ns))});
  }

  void settings() {
    out_.settings = {{"program", run_.program.name},
                     {"device", run_.device},
                     {"status", std::string(name_of(run_.status))},
                     {"predicted_peak_bytes", std::to_string(run_.predicted_peak_bytes)},
                     {"measured_peak_bytes", std::to_string(run_.peak_bytes)}};
  }

  static constexpr std::int64_t kMaxSmallBytes = 1 << 20;  // as the viewers' own allocator

  const MemoryRun& run_;
  MemorySnapshot& out_;
  std::vector<int> stack_of_buffer_;
  std::map<std::size_t, std::size_t> holding_;  // by event, its alloc or its free
};

// Drops the oldest entries; a completed free is never kept without its request.
void drop_oldest(MemorySnapshot& snapshot, std::size_t keep) {
  auto& events = snapshot.events;
  if (keep == 0 || events.size() <= keep) return;
  std::size_t drop = events.size() - keep;
  while (drop < events.size() && events[drop].action == "free_completed") ++drop;
  snapshot.left_out = static_cast<std::int64_t>(drop);
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(drop));
  const bool has_unknown =
      std::ranges::any_of(events, [](const SnapshotEvent& e) { return e.category == "unknown"; });
  if (has_unknown) return;
  const auto other =
      std::ranges::find_if(events, [](const SnapshotEvent& e) { return e.action != "alloc"; });
  if (other != events.end()) other->category = "unknown";
}

}  // namespace

MemorySnapshot snapshot_of(const MemoryRun& run, std::size_t max_entries, int device) {
  MemorySnapshot out;
  out.device = device;
  Maker(run, out).make();
  drop_oldest(out, max_entries);
  return out;
}

}  // namespace tracestep

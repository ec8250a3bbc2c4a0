// Sorts the events of a recording by time, however many there are: if they do not fit into memory,
// sorted parts wait in a temporary file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "lab/read/names.h"

namespace tracestep {

// The kinds of events. Among events that begin at the same time, a kind encloses those that come
// after it here.
enum class EventKind : std::uint8_t { kRange, kModule, kOp, kCall, kKernel, kCopy };

struct TraceEvent {
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t name = 0;
  std::uint32_t thread = 0;  // The thread; for a kernel its device and stream, 16 bits each.
  // The correlation number of a call or kernel, or the sequence number of an op.
  std::uint32_t link = kNoNumber;
  std::uint32_t order = 0;  // The event's index in the file.
  EventKind kind = EventKind::kOp;
  // True for an op of backward, which names the thread of its forward op.
  bool is_gradient = false;

  bool is_of_device() const { return kind >= EventKind::kKernel; }
};

class EventOrder {
 public:
  // Starts without events, and holds at most `room` of them in memory.
  explicit EventOrder(std::size_t room = std::size_t{3} << 20) : room_(room) {}

  // Adds an event. Throws Error{kInput} if the temporary file cannot be written.
  void add(const TraceEvent& event);
  // Calls `visit` with all events in order of their begin; it may be called several times, but
  // nothing may be added afterwards. Kernels are sorted `kKernelLagNs` later than they begin, so
  // that a device clock that is slightly ahead does not put a kernel before its launch.
  void for_each(const std::function<void(const TraceEvent&)>& visit);

  static constexpr std::int64_t kKernelLagNs = 100'000'000;

 private:
  void sort_held();
  void put_away();
  std::vector<TraceEvent> part(std::size_t run, std::uint64_t at) const;

  std::size_t room_;
  std::vector<TraceEvent> held_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
  // The index of each sorted part's first event; a part ends where the next one begins.
  std::vector<std::uint64_t> runs_;
  std::uint64_t stored_ = 0;
};

}  // namespace tracestep

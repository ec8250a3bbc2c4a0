// Events of a recording in the order of time, however many there are: what has no room in memory is
// sorted in parts, which wait in a temporary file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "lab/read/names.h"

namespace tracestep {

// In the order in which those that begin together enclose each other.
enum class EventKind : std::uint8_t { kRange, kModule, kOp, kCall, kKernel, kCopy };

struct TraceEvent {
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t name = 0;
  std::uint32_t thread = 0;        // of a kernel, its device and stream: 16 bits each
  std::uint32_t link = kNoNumber;  // correlation of calls and kernels, sequence number of ops
  std::uint32_t order = 0;         // its place in the file
  EventKind kind = EventKind::kOp;
  bool is_gradient = false;  // of an op: it names the thread of its forward pass

  bool is_of_device() const { return kind >= EventKind::kKernel; }
};

class EventOrder {
 public:
  // At most `room` events are held in memory.
  explicit EventOrder(std::size_t room = std::size_t{3} << 20) : room_(room) {}

  // Errors: kInput where the temporary file cannot be written.
  void add(const TraceEvent& event);
  // Calls `visit` with all events by their begin; any number of times, once nothing more is added.
  // Kernels come later by `kKernelLag`, so that a clock of a device that is a little ahead puts
  // none before its launch.
  void for_each(const std::function<void(const TraceEvent&)>& visit);

  static constexpr std::int64_t kKernelLagNs = 100'000'000;

 private:
  void sort_held();
  void put_away();
  std::vector<TraceEvent> part(std::size_t run, std::uint64_t at) const;

  std::size_t room_;
  std::vector<TraceEvent> held_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
  std::vector<std::uint64_t> runs_;  // where each begins, in events; they end where the next begins
  std::uint64_t stored_ = 0;
};

}  // namespace tracestep

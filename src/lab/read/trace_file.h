// Reads a recording of torch.profiler, in the format of Chrome's trace viewer: what ran on the host
// and on devices, and how calls, kernels and ops refer to each other. Traces of other programs in
// this format are read as far as they have this. Events are passed to an EventOrder; this file
// keeps everything else.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/profile/intervals.h"
#include "lab/read/event_order.h"
#include "lab/read/names.h"

namespace tracestep {

struct TraceFacts {
  std::filesystem::path path;
  Names names;
  std::uint32_t threads = 0;
  std::vector<std::string> gpus;  // names of devices
  // The ProfilerStep# ranges and the Optimizer.step# ranges, in order of their begin.
  Intervals profiled, optimized;
  std::int64_t counts[6] = {};             // The number of events that were kept, by EventKind.
  std::int64_t first_ns = 0, last_ns = 0;  // The begin of the first and the end of the last event.
  std::int64_t events = 0, unreadable = 0;
  // The rank of the recording and the number of ranks; rank -1: the file does not say.
  std::int64_t rank = -1, ranks = 0;
  bool has_shapes = false;
  bool is_cut = false;  // True: the file ends within its list of events.

  std::int64_t count(EventKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  bool is_of_device() const { return count(EventKind::kKernel) + count(EventKind::kCopy) > 0; }
  bool has_modules() const { return count(EventKind::kModule) > 0; }

  // The number of slots for facts that are stored by the last bits of a rising number (sequence or
  // correlation), where only the latest fact is needed. The numbers in a recording are consecutive,
  // so a short recording needs few slots.
  std::size_t ring_size() const {
    constexpr std::uint64_t kLeast = 1 << 12, kMost = 1 << 20;
    const auto wanted = std::clamp(8 * static_cast<std::uint64_t>(events), kLeast, kMost);
    return std::bit_ceil(wanted);
  }
};

inline constexpr std::string_view kProfilerStep = "ProfilerStep#";
inline constexpr std::string_view kOptimizerStep = "Optimizer.step#";

// Reads a trace. Throws Error{kInput} if unreadable, no JSON, or without ops, kernels and ranges.
TraceFacts read_trace_events(const std::filesystem::path& path, EventOrder& events);

}  // namespace tracestep

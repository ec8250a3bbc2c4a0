// A recording of torch.profiler, as it writes it for Chrome's trace viewer: what ran on the host
// and on devices, and how calls, kernels and ops name each other. Of other programs' traces in this
// form what they have is read. Events go on to an EventOrder; here is what else the file says.
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
  Intervals profiled, optimized;  // ProfilerStep# and Optimizer.step# ranges, by their begin
  std::int64_t counts[6] = {};    // events kept, by EventKind
  std::int64_t first_ns = 0, last_ns = 0;  // of all of these
  std::int64_t events = 0, unreadable = 0;
  std::int64_t rank = -1, ranks = 0;  // -1: the file does not say
  bool has_shapes = false;
  bool is_cut = false;  // the file ends within its list

  std::int64_t count(EventKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  bool is_of_device() const { return count(EventKind::kKernel) + count(EventKind::kCopy) > 0; }
  bool has_modules() const { return count(EventKind::kModule) > 0; }

  // Slots for facts by the last bits of a rising number (sequence, correlation), where the latest
  // is the one asked for. A recording's numbers lie side by side: a short one needs no room for
  // many.
  std::size_t ring_size() const {
    constexpr std::uint64_t kLeast = 1 << 12, kMost = 1 << 20;
    const auto wanted = std::clamp(8 * static_cast<std::uint64_t>(events), kLeast, kMost);
    return std::bit_ceil(wanted);
  }
};

inline constexpr std::string_view kProfilerStep = "ProfilerStep#";
inline constexpr std::string_view kOptimizerStep = "Optimizer.step#";

// Errors: kInput for a file that cannot be read, that is no JSON, or has no events of this kind.
TraceFacts read_trace_events(const std::filesystem::path& path, EventOrder& events);

}  // namespace tracestep

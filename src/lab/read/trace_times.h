// Sums up the times of a recording by step: of steps, kinds of work, modules, kernels and gaps.
// Events are added while they are read, and are not kept.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/enum_words.h"
#include "lab/read/parts.h"
#include "lab/read/trace_steps.h"

namespace tracestep {

// Why a device was idle before a piece of work.
enum class GapCause : std::uint8_t {
  kWait,      // The host waited for the device, and launched the work only afterwards.
  kLoading,   // The host was loading data.
  kHostWork,  // The host was in ops and calls.
  kPython,    // The host ran nothing that was recorded.
  kLaunch,    // The launch itself took this long, because the host launched the work late.
  kDevice,    // The work had been launched earlier and waited for other streams, copies or devices.
};
TRACESTEP_WORDS(GapCause, "the host waits for the device", "the host gets data",
                "the host is in ops and calls", "Python, or nothing recorded", "the launch itself",
                "launched long before, not begun");

// A kernel; in a recording without kernels, an op with the time that no op in it takes.
struct WorkPiece {
  std::int64_t start_ns = 0, end_ns = 0;
  // The time in which no other piece counts, so that the times of all pieces add up.
  std::int64_t own_ns = 0;
  std::uint32_t name = 0;  // An index into TraceFacts::names.
  HostPlace place = {};
  std::int32_t step = -1;                // The step; -1: in none.
  std::int64_t launched_ns = INT64_MIN;  // The begin of the call that launched it.
  std::uint16_t device = 0;
  bool is_copy = false, is_replayed = false;
  WorkClass work = WorkClass::kMemoryBound;
};

struct OpTimes {
  std::int64_t calls = 0;
  double total_ns = 0, own_ns = 0;
};

struct TraceTimes {
  TraceSteps steps;
  // The time of each step; on a device, from its first kernel to that of the next step.
  std::vector<double> step_ms;
  std::vector<double> host_ms;  // The time of each step on the host.
  Names paths;  // Paths of modules, such as "GPT_0/Block_3/Linear_1"; the first one is empty.
  // Times of all parts. Kernels count with their whole durations, also if they overlap.
  Parts parts;
  std::unordered_map<std::uint32_t, OpTimes> ops;  // Times of ops, ranges and calls by name.
  // The durations of each collective, by name.
  std::map<std::uint32_t, std::vector<std::int64_t>> collectives;
  std::vector<double> launch_delays_us;  // The time from the begin of a call to that of its kernel.
  // The number of pieces; of pieces without a known call; of those in graph replays; and of these,
  // those whose op was found.
  std::int64_t pieces = 0, unlinked = 0, replayed = 0, named = 0;
  std::uint16_t device = 0;     // The device of the first piece.
  std::int32_t kept_step = -1;  // The step whose pieces are kept, up to a limit; -1: none.
  std::vector<WorkPiece> kept;

  TraceTimes();

  std::size_t count() const { return steps.spans.size(); }
  double mean_step_ms() const;
  std::int32_t middle_step() const;  // The step whose time is nearest to the median.
  // The time of each step in all parts of a level, except part `but`.
  std::vector<double> ms_of(PartLevel level, std::uint32_t but = kNoNumber) const;
};

// Sums up the times. The kernels that this recording launches one by one are added to `eager`. If
// `eager` already has those of another recording of the same program, with the numbers of
// `facts.names` and `times.paths`, these name the kernels of replays instead.
TraceTimes times_of(const TraceFacts& facts, EventOrder& events, EagerKernels& eager,
                    TraceTimes times);

}  // namespace tracestep

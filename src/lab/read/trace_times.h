// The times of a recording by step: of steps, of kinds of work, of modules, kernels and gaps. They
// are added up while the events go by, and nothing is kept of an event itself.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "lab/read/parts.h"
#include "lab/read/trace_steps.h"

namespace tracestep {

// Why a device did nothing before a piece of work began.
enum class GapCause : std::uint8_t {
  kWait,      // the host was waiting for the device, and launched afterwards
  kLoading,   // it was getting data
  kHostWork,  // it was in ops and calls
  kPython,    // nothing that was recorded ran on it
  kLaunch,    // the launch itself, of work that the host was late with
  kDevice,    // the work had been launched before: streams, copies, other devices
};
std::string_view name_of(GapCause cause);  // "waits for the device"

// A kernel; where there are none, an op for the time that no op within it took.
struct WorkPiece {
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t own_ns = 0;  // of the moments that no other piece has: these add up
  std::uint32_t name = 0;   // in TraceFacts::names
  HostPlace place = {};
  std::int32_t step = -1;                // -1: in none of them
  std::int64_t launched_ns = INT64_MIN;  // when its call began
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
  std::vector<double> step_ms;  // of a device: from its first kernel to that of the next step
  std::vector<double> host_ms;  // of the host
  Names paths;                  // of modules: "GPT_0/Block_3/Linear_1"; the first is ""
  Parts parts;                  // kernels by their durations, also where they ran beside others
  std::unordered_map<std::uint32_t, OpTimes> ops;                  // ops, ranges and calls, by name
  std::map<std::uint32_t, std::vector<std::int64_t>> collectives;  // how long each took, by name
  std::vector<double> launch_delays_us;  // from a call's begin to its kernel's
  std::int64_t pieces = 0, unlinked = 0, replayed = 0, named = 0;  // `named` of those replayed
  std::uint16_t device = 0;                                        // of the first piece
  std::int32_t kept_step = -1;  // whose pieces are kept, as far as there is room; -1: none
  std::vector<WorkPiece> kept;

  TraceTimes();

  std::size_t count() const { return steps.spans.size(); }
  double mean_step_ms() const;
  std::int32_t middle_step() const;  // the one that is nearest to the median
  // The times of each step, in all parts of a level but one of these.
  std::vector<double> ms_of(PartLevel level, std::uint32_t but = kNoNumber) const;
};

// `eager` gets the kernels that this recording launches one by one. Where it has those of another
// recording of the same program already, numbered as `facts.names` and `times.paths` are, they name
// those of replays instead.
TraceTimes times_of(const TraceFacts& facts, EventOrder& events, EagerKernels& eager,
                    TraceTimes times);

}  // namespace tracestep

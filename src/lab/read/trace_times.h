// The times of a recording by step: of steps, of kinds of work, of modules, kernels and gaps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/read/per_step.h"
#include "lab/read/trace_parts.h"

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
inline constexpr GapCause kAllGapCauses[] = {GapCause::kWait,     GapCause::kLoading,
                                             GapCause::kHostWork, GapCause::kPython,
                                             GapCause::kLaunch,   GapCause::kDevice};
std::string_view name_of(GapCause cause);  // "waits for the device"

struct KernelTimes {
  std::uint32_t name = 0;
  WorkClass work = WorkClass::kMemoryBound;
  std::uint32_t op = kNoNumber;  // that launched it first
  std::uint32_t module = 0;      // likewise
  PerStep whole = {};            // durations, also where it ran beside others
};

struct ModuleTimes {
  std::uint32_t path = 0;  // in TraceParts::modules
  PerStep own = {};        // in itself, not in modules within it
  PerStep passes[std::size(kAllTracePasses)] = {};
};

struct TraceTimes {
  std::size_t steps = 0;
  std::vector<double> step_ms;  // of a device: from its first kernel to that of the next step
  std::vector<double> host_ms;  // of the host
  PerStep kinds[std::size(kAllWorkClasses)];
  PerStep hidden_collectives;  // beside other work
  PerStep passes[std::size(kAllTracePasses)] = {};
  PerStep gaps[std::size(kAllGapCauses)];
  std::vector<KernelTimes> kernels;      // the one with the most time first
  std::vector<ModuleTimes> modules;      // in the order in which they ran
  std::vector<double> launch_delays_us;  // from a call's begin to its kernel's

  double mean_step_ms() const;
  std::vector<double> gap_ms() const;  // all causes
};

// CHECKs that there is a step.
TraceTimes times_of(const TraceParts& parts);

}  // namespace tracestep

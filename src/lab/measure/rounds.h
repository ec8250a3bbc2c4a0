// Cells that are held against each other are measured in rounds. Each round visits every cell once,
// in an order drawn by lot, and each visit prepares its cell anew: addresses, threads and the
// machine's state are then noise within a cell's own samples, and what changes meanwhile (clocks,
// heat, other work) meets all cells alike. One cell is alive at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/signals.h"
#include "lab/measure/row_facts.h"
#include "record/recorder.h"

namespace tracestep {

// --- the order of visits -------------------------------------------------------------------------

struct RoundLimits {
  int least = 3, most = 6;  // rounds
  // How long all may take; 0: no limit, and `most` rounds. With a limit the rounds end between the
  // least and the most.
  double seconds = 0;
  std::uint64_t seed = 0;  // of the lot
  // With a limit: so many first cells, which headlines compare, are in this many rounds at least,
  // where that takes no more than half of the time. Six pairs have an interval of 95 %; three lie
  // on one side by chance once in four times.
  std::size_t leads = 0;
  int least_of_leads = 6;
  std::int64_t (*clock)() = now_ns;  // in nanoseconds
  // True if the first visit of a cell was measured before, and takes no time; empty: none was.
  std::function<bool(std::size_t cell)> is_known = {};
};
// For as long a visit samples, two steps at least: on a CPU, and on a device that computes while
// the host goes on, whose clocks and queues want longer.
inline constexpr double kVisitSeconds = 0.05, kAsynchronousVisitSeconds = 0.3;

// Visits cells in rounds, those that matter most first. `weights`: what a visit of each takes,
// relative to the others'. Where time is short cells are left out from the last one on, rather than
// rounds below the least (unless most would be: then one visit of each comes first), by weights and
// the first visit that measures, after a round by what visits took. Those that were left out are
// visited once where the others leave time. What was visited keeps its visits. `visit`: false:
// this cell is not visited again. Ends where `stop` is requested. Returns for each cell whether it
// was visited.
std::vector<bool> run_rounds(std::span<const double> weights, const RoundLimits& limits,
                             const std::function<bool(std::size_t cell, int round)>& visit,
                             const StopSignal* stop = nullptr);

// --- what several visits add up to ---------------------------------------------------------------

// Counters only mean something by their differences: what they counted between the two is left out.
void join_visits(HostAround& host, const HostAround& later);
void join_visits(DeviceFacts& before, DeviceFacts& after, const DeviceFacts& later_before,
                 const DeviceFacts& later_after);

}  // namespace tracestep

// Cells that are compared with each other are measured in rounds. Each round visits every cell
// once, in an order drawn by lot, and each visit prepares its cell anew: addresses, threads and the
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
  // The most seconds for all rounds; 0: no limit, and `most` rounds are run. With a limit, the
  // number of rounds is between `least` and `most`.
  double seconds = 0;
  std::uint64_t seed = 0;  // The seed of the random order.
  // With a time limit: the first `leads` cells, which headlines compare, get at least
  // `least_of_leads` rounds if these take no more than half of the time. Six pairs give a 95 %
  // interval; three pairs lie on one side by chance one time in four.
  std::size_t leads = 0;
  int least_of_leads = 6;
  std::int64_t (*clock)() = now_ns;  // The clock, in nanoseconds.
  // True if the first visit of a cell was measured earlier and is read from a file, so that it
  // takes no time; empty: no cell was.
  std::function<bool(std::size_t cell)> is_known = {};
};
// How many seconds a visit samples at least (and at least two steps): on a CPU, and on a device
// that computes asynchronously, whose clocks and queues need longer to settle.
inline constexpr double kVisitSeconds = 0.05, kAsynchronousVisitSeconds = 0.3;

// Visits cells in rounds; the list begins with what matters most. `weights`: the time of a visit
// of each cell, relative to the others. Where time is short, cells are left out, the last ones
// first, rather than rounds below the least (unless most would be: then one visit of each comes
// first). Times are estimated by weights and the first visit that measures, after a round by the
// visits. Cells left out are visited once if time remains. A cell is not visited again when
// `visit` returns false. Ends where `stop` is requested. Returns for each cell whether it was
// visited.
std::vector<bool> run_rounds(std::span<const double> weights, const RoundLimits& limits,
                             const std::function<bool(std::size_t cell, int round)>& visit,
                             const StopSignal* stop = nullptr);

// --- what several visits add up to ---------------------------------------------------------------

// Joins the host's counters of a later visit. Counters are only meaningful as differences, so what
// they counted between the two visits is left out.
void join_visits(HostAround& host, const HostAround& later);
void join_visits(DeviceFacts& before, DeviceFacts& after, const DeviceFacts& later_before,
                 const DeviceFacts& later_after);

}  // namespace tracestep

// Cells that are held against each other are measured in rounds. Each round visits every cell once,
// in an order drawn by lot, and each visit prepares its cell anew: addresses, threads and the
// machine's state are then noise within a cell's own samples, and what changes meanwhile (clocks,
// heat, other work) meets all cells alike. One cell is alive at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/signals.h"
#include "lab/measure/measurement.h"
#include "lab/measure/row_facts.h"
#include "record/recorder.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

// --- the order of visits -------------------------------------------------------------------------

struct RoundLimits {
  int least = 3, most = 6;  // rounds
  // How long all may take; 0: no limit. With a limit the rounds end between the least and the most,
  // and a visit samples for kVisitSeconds; without one each of the `most` rounds takes the samples
  // that the protocol asks for.
  double seconds = 0;
  std::uint64_t seed = 0;  // of the lot
  // With a limit: so many first cells, which headlines compare, are in this many rounds at least,
  // where that takes no more than half of the time. Six pairs have an interval of 95 %; three lie
  // on one side by chance once in four times.
  std::size_t leads = 0;
  int least_of_leads = 6;
  std::int64_t (*clock)() = now_ns;  // in nanoseconds
};
// For as long a visit samples, two steps at least: on a CPU, and on a device that computes while
// the host goes on, whose clocks and queues want longer.
inline constexpr double kVisitSeconds = 0.05, kAsynchronousVisitSeconds = 0.3;

// Visits cells in rounds, those that matter most first. `weights`: what a visit of each takes,
// relative to the others'. Where time is short cells are left out from the last one on, rather than
// rounds below the least: before the first round by their weights and the first cell's visit, after
// it by what their visits took. `visit`: false: this cell is not visited again. Ends where `stop`
// is requested. Returns for each cell whether it belonged to the rounds.
std::vector<bool> run_rounds(std::span<const double> weights, const RoundLimits& limits,
                             const std::function<bool(std::size_t cell, int round)>& visit,
                             const StopSignal* stop = nullptr);

// --- what several visits add up to ---------------------------------------------------------------

// Counters only mean something by their differences: what they counted between the two is left out.
void join_visits(HostAround& host, const HostAround& later);
void join_visits(DeviceFacts& before, DeviceFacts& after, const DeviceFacts& later_before,
                 const DeviceFacts& later_after);

// --- one cell, one result ------------------------------------------------------------------------

// The cells that several tables ask for, each measured once, whoever asks for it. A spec has a
// protocol: its warm-up steps are those of each visit, its steps the most samples of a visit, its
// recorded steps those of the cell, one in each of so many rounds. Beside the two types there are
//   Json key_of(spec);
//   Result visit(make_device, spec, stop);   // out of memory and signals are results
//   void add_visit(result, later);           // joins the samples of a later visit
//   double visit_weight(spec);               // what a visit takes, relative to other specs
template <class Spec, class Result>
class CellRounds {
 public:
  // Cells that matter most are asked for first. Asked for again, a cell has the more recorded steps
  // of both. A cell that was measured stays as it is.
  void want(const Spec& spec) { want(spec, false); }
  // A cell that a headline compares: it stands before all others, in more rounds.
  void want_lead(const Spec& spec) { want(spec, true); }

  // Visits what was wanted and not measured yet in rounds. Cells for which there is no time have no
  // result.
  void measure(const DeviceFactory& make_device, const RoundLimits& limits, const StopSignal* stop,
               const std::function<void(const Spec& spec, int round)>& announce);

  // Leaves out what was wanted and not measured yet.
  void leave_out() {
    left_out_ = 0;
    for (Cell& cell : cells_) left_out_ += std::exchange(cell.is_over, true) ? 0 : 1;
  }

  // nullptr: it was not wanted, or left out.
  const Result* find(const Spec& spec) const {
    const auto known = numbers_.find(key_of(spec).dump());
    if (known == numbers_.end()) return nullptr;
    const Cell& cell = cells_[known->second];
    return cell.is_measured ? &cell.result : nullptr;
  }
  std::size_t left_out() const { return left_out_; }  // by the last measure() or leave_out()

 private:
  struct Cell {
    Spec spec;
    Result result = {};
    bool is_measured = false, is_over = false, is_lead = false;
  };

  void want(const Spec& spec, bool is_lead) {
    const std::string key = key_of(spec).dump();
    const auto [known, is_new] = numbers_.try_emplace(key, cells_.size());
    if (is_new) cells_.push_back({.spec = spec});
    Cell& cell = cells_[known->second];
    cell.is_lead = cell.is_lead || is_lead;
    int& recorded = cell.spec.protocol.recorded_steps;
    recorded = std::max(recorded, spec.protocol.recorded_steps);
  }

  std::vector<Cell> cells_;
  std::map<std::string, std::size_t> numbers_;
  std::size_t left_out_ = 0;
};

template <class Spec, class Result>
void CellRounds<Spec, Result>::measure(
    const DeviceFactory& make_device, const RoundLimits& asked, const StopSignal* stop,
    const std::function<void(const Spec& spec, int round)>& announce) {
  std::vector<Cell*> group;
  std::vector<double> weights;
  for (Cell& cell : cells_) {
    if (std::exchange(cell.is_over, true)) continue;
    group.push_back(&cell);
  }
  const auto others = std::ranges::stable_partition(group, &Cell::is_lead);
  RoundLimits limits = asked;
  limits.leads = group.size() - others.size();
  for (const Cell* cell : group) weights.push_back(visit_weight(cell->spec));
  const auto visit_one = [&](std::size_t i, int round) {
    Cell& cell = *group[i];
    announce(cell.spec, round + 1);
    Spec here = cell.spec;
    here.protocol.visit_seconds = limits.seconds > 0 ? kVisitSeconds : 0;
    here.protocol.recorded_steps = round < cell.spec.protocol.recorded_steps ? 1 : 0;
    Result seen = visit(make_device, here, stop);
    const bool is_ok = seen.status == Status::kOk;
    if (seen.status == Status::kInterrupted) return false;
    if (!std::exchange(cell.is_measured, true)) {
      cell.result = std::move(seen);
    } else if (is_ok) {
      add_visit(cell.result, seen);
    }
    return is_ok;
  };
  const std::vector<bool> kept = run_rounds(weights, limits, visit_one, stop);
  for (std::size_t i = 0; i < group.size(); ++i) group[i]->is_measured &= kept[i];
  left_out_ = static_cast<std::size_t>(std::ranges::count(kept, false));
}

}  // namespace tracestep

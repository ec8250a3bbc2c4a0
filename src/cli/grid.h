// The cells of a command, measured one after the other or in rounds (lab/measure/rounds.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/signals.h"
#include "cli/option_set.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "lab/measure/beside.h"
#include "lab/measure/rounds.h"
#include "lab/time/cell.h"
#include "passes/recompute_budget.h"
#include "session/devices.h"
#include "spec/fields.h"

namespace tracestep::cli {

struct RoundOptions {
  int rounds = 1, repeat = 1;
  std::uint64_t seed = 0;  // of the order in which a round visits cells

  int visits() const { return rounds * repeat; }
};

void add_round_options(OptionSet& set, RoundOptions& options);
// Error{kUsage} for copies of cells without rounds.
void check_rounds(const RoundOptions& options);
// Adds what rounds tell of cells beside each other.
void add_beside(const std::vector<BesideCell>& cells, std::vector<Table>& tables);

// The progress line of a grid: "3/12  about 20 s left  small step".
class GridView {
 public:
  // `costs`: of each cell, in any unit.
  explicit GridView(std::vector<double> costs);

  void begin(std::size_t cell, const std::string& label);
  void end();
  void show_visit(int round, int rounds, const std::string& label);
  // Shows how many steps of the cell are done; empty where nothing is shown.
  std::function<void(std::size_t done, std::size_t most)> observer();

 private:
  void show(const std::string& part);

  std::vector<double> costs_;
  RemainingTime left_;
  ProgressLine line_;
  std::string label_;
  std::size_t at_ = 0, visits_ = 0;
};

// The result of each cell, or of those that were done when the signal came. `measure_one(spec,
// observer)` measures a cell by itself where there are no rounds.
template <class Result, class Spec, class MeasureOne>
std::vector<Result> measure_grid(const std::vector<Spec>& cells, const RoundOptions& options,
                                 const StopSignal& stop, const MeasureOne& measure_one) {
  std::vector<Spec> specs;
  std::vector<double> costs;
  for (const Spec& cell : cells) {
    for (int copy = 1; copy <= options.repeat; ++copy) {
      specs.push_back(cell);
      specs.back().copy = copy;
      costs.push_back(visit_weight(cell));
    }
  }
  GridView view(std::move(costs));
  std::vector<Result> out;
  if (options.rounds == 1) {
    for (std::size_t i = 0; i < specs.size() && !stop.requested(); ++i) {
      view.begin(i, label_of(specs[i]));
      Result result = measure_one(specs[i], view.observer());
      if (result.status == Status::kInterrupted) break;
      view.end();
      out.push_back(std::move(result));
    }
    return out;
  }
  CellRounds<Spec, Result> rounds;
  for (const Spec& spec : specs) rounds.want(spec);
  rounds.measure(
      make_device, {.least = options.rounds, .most = options.rounds, .seed = options.seed}, &stop,
      [&](const Spec& spec, int round) { view.show_visit(round, options.rounds, label_of(spec)); });
  for (const Spec& spec : specs) {
    if (const Result* found = rounds.find(spec)) out.push_back(*found);
  }
  return out;
}

// The cells of these runs, measured so, each with the highest speed that its device reaches, for
// the validity checker. `roof`: TFLOP/s; none: measured before the first cell; 0: not known.
std::vector<CellResult> measure_steps(const std::vector<RunSpec>& runs, const Protocol& protocol,
                                      RoundOptions options, const StopSignal& stop,
                                      std::optional<double> roof = 0.0);

// The result of work(). A budget that cannot be met ends a run of one step; in a grid it is that
// row's status: result_of(error) then, with a warning.
template <class Work, class ResultOf>
auto or_beyond_budget(bool is_only, const RunSpec& run, const Work& work, const ResultOf& result_of)
    -> decltype(work()) {
  try {
    return work();
  } catch (const BudgetNotMet& error) {
    if (is_only && !CapturedResult::is_on()) throw;
    log_warn("{}: {}", label_of(run), error.what());
    return result_of(error);
  }
}

}  // namespace tracestep::cli

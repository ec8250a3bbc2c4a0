// Helps commands that measure a grid of cells: options of rounds, the progress line, and cells that
// run out of memory.
#pragma once

#include <functional>
#include <optional>
#include <span>
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
  std::uint64_t seed = 0;  // The seed of the random order in which a round visits cells.

  int visits() const { return rounds * repeat; }
};

void add_round_options(OptionSet& set, RoundOptions& options);
// Throws Error{kUsage} if copies of cells are asked for without rounds.
void check_rounds(const RoundOptions& options);

// The progress line of a grid: "3/12  about 20 s left  small step".
class GridView {
 public:
  // Starts at the first visit. `costs`: the relative cost of each visit, in any unit.
  explicit GridView(std::span<const double> costs);

  void begin(double cost, const std::string& label);
  void end();
  // A function that shows how many steps of the cell are done; empty if progress is not shown.
  std::function<void(std::size_t done, std::size_t most)> observer();

 private:
  void show(const std::string& part);

  RemainingTime left_;
  ProgressLine line_;
  std::string label_;
  std::size_t at_ = 0, count_;
};

// Returns work(). If a memory budget cannot be met, a run of one step fails; in a grid, that row
// becomes result_of(error), with a warning.
template <class Work, class ResultOf>
auto or_beyond_budget(bool is_only, const RunSpec& run, const Work& work, const ResultOf& result_of)
    -> decltype(work()) {
  try {
    return work();
  } catch (const BudgetNotMet& error) {
    if (is_only) throw;
    log_warn("{}: {}", label_of(run), error.what());
    return result_of(error);
  }
}

}  // namespace tracestep::cli

// The cells of a command, measured one after the other or in rounds (lab/measure/rounds.h).
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
  std::uint64_t seed = 0;  // of the order in which a round visits cells

  int visits() const { return rounds * repeat; }
};

void add_round_options(OptionSet& set, RoundOptions& options);
// Error{kUsage} for copies of cells without rounds.
void check_rounds(const RoundOptions& options);

// The progress line of a grid: "3/12  about 20 s left  small step".
class GridView {
 public:
  // `costs`: of each visit, in any unit.
  explicit GridView(std::span<const double> costs);

  void begin(double cost, const std::string& label);
  void end();
  // Shows how many steps of the cell are done; empty where nothing is shown.
  std::function<void(std::size_t done, std::size_t most)> observer();

 private:
  void show(const std::string& part);

  RemainingTime left_;
  ProgressLine line_;
  std::string label_;
  std::size_t at_ = 0, count_;
};

// The result of work(). A budget that cannot be met ends a run of one step; in a grid it is that
// row's status: result_of(error) then, with a warning.
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

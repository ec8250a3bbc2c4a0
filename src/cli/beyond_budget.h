// What a grid does with a step whose memory budget no choice of what to compute again meets.
#pragma once

#include "base/log.h"
#include "cli/output.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"

namespace tracestep::cli {

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

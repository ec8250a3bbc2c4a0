// Recomputation under a budget: the cheapest choice of what backward computes again that keeps a
// step's peak within so many bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/program.h"
#include "planning/device_traits.h"

namespace tracestep {

struct WithinBudget {
  Program program;
  std::string choice = {};  // "nothing", "blocks", "12 of 84 nodes that make what is saved", …
  std::int64_t peak_bytes = 0;   // of the finished step
  double again_us = 0.0;         // modelled time of what is computed again
  double least_us = 0.0;         // no choice that fits takes less
  std::vector<bool> again = {};  // what runs again, by node of the program; empty for "nested"
};

// Error{kUsage}: no choice brings the step's peak within the budget.
class BudgetNotMet : public Error {
 public:
  // `least_name`: the choice with the least peak.
  BudgetNotMet(std::int64_t budget_bytes, std::int64_t least_peak_bytes,
               const std::string& least_name);
  std::int64_t least_peak_bytes() const { return least_peak_bytes_; }

 private:
  std::int64_t least_peak_bytes_;
};

// The choice, its peak and time, and how far from the best it may be, in a line.
std::string words_of(const WithinBudget& found);

// Bytes that the step has at its peak when the passes after this one have finished it.
using PeakOf = std::function<std::int64_t(const Program&)>;

// Solves budgets of one program; what one solution has found out of choices serves the next.
class BudgetSolver {
 public:
  // `program` must outlive the solver.
  // `fuses`: the passes after this one fuse what runs again.
  BudgetSolver(const Program& program, DeviceKind kind, PeakOf peak_of, bool fuses = false);
  ~BudgetSolver();
  BudgetSolver(const BudgetSolver&) = delete;
  BudgetSolver& operator=(const BudgetSolver&) = delete;

  // As recompute_within().
  WithinBudget within(std::int64_t budget_bytes);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

// Compares the fixed choices (blocks, every=N, nested) with sets of single nodes. Those begin as a
// fixed choice, as the best for some price of a byte kept (least cuts, analysis/min_cut.h) and as
// mixtures of two neighbouring ones, block by block; then nodes are kept after all while the peak
// allows it (recompute_profile.h), also with results of blocks added up again. Of at most 12
// forward nodes every set is compared as well. All peaks are predicted exactly by `peak_of`; time
// is modelled (analysis/modelled_time.cpp) for `kind`. BudgetNotMet when no choice fits, naming the
// least peak.
WithinBudget recompute_within(const Program& program, std::int64_t budget_bytes, DeviceKind kind,
                              const PeakOf& peak_of, bool fuses = false);

}  // namespace tracestep

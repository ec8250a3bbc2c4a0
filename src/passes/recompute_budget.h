// Recomputation under a memory budget: finds the cheapest choice of recomputed nodes that keeps a
// step's peak within a number of bytes.
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
  // The choice in words: "nothing", "blocks", "12 of 84 nodes that make what is saved", …
  std::string choice = {};
  std::int64_t peak_bytes = 0;  // The peak of the step after all passes.
  double again_us = 0.0;        // The modelled time of what is recomputed, in microseconds.
  double least_us = 0.0;  // A lower bound on the time of any choice that fits, in microseconds.
  std::vector<bool> again = {};  // For each node, whether it is recomputed; empty for "nested".
};

// Thrown, as Error{kUsage}, if no choice brings the step's peak within the budget.
class BudgetNotMet : public Error {
 public:
  // `least_name`: the choice with the least peak.
  BudgetNotMet(std::int64_t budget_bytes, std::int64_t least_peak_bytes,
               const std::string& least_name);
  std::int64_t least_peak_bytes() const { return least_peak_bytes_; }
  const std::string& least_name() const { return least_name_; }

 private:
  std::int64_t least_peak_bytes_;
  std::string least_name_;
};

// A line with the choice, its peak and time, and how far it may be from the best one.
std::string words_of(const WithinBudget& found);

// A function that returns the peak of a step, in bytes, after the passes that follow `recompute`.
using PeakOf = std::function<std::int64_t(const Program&)>;

// Solves several budgets for one program; what it learns about choices for one serves the next.
class BudgetSolver {
 public:
  // `program` must outlive the solver. `fuses`: the passes that follow fuse recomputed nodes.
  BudgetSolver(const Program& program, DeviceKind kind, PeakOf peak_of, bool fuses = false);
  ~BudgetSolver();
  BudgetSolver(const BudgetSolver&) = delete;
  BudgetSolver& operator=(const BudgetSolver&) = delete;

  // Returns what recompute_within() returns for this program and budget.
  WithinBudget within(std::int64_t budget_bytes);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

struct PassOptions;  // passes/pass_rules.h

// Solvers, by the program before `recompute`: for passes that come to the same program, and for
// runs of the passes with several budgets.
class BudgetSolvers {
 public:
  BudgetSolvers();
  ~BudgetSolvers();
  BudgetSolvers(const BudgetSolvers&) = delete;
  BudgetSolvers& operator=(const BudgetSolvers&) = delete;

  // Returns what recompute_within() does for the budget of the options' run, with the peak of the
  // program that the passes after `recompute` make of a choice. Runs that share solvers differ in
  // their budgets, and in what their programs show.
  WithinBudget within(const Program& program, const PassOptions& options);

 private:
  struct Solved;
  std::vector<std::unique_ptr<Solved>> all_;
};

// Compares the fixed choices (blocks, every=N, nested) with sets of single nodes. Such a set starts
// as a fixed choice, as the best choice for some price per kept byte (a minimum cut,
// analysis/min_cut.h), or as a mixture of two neighbouring ones, block by block. Then nodes are
// kept after all as long as the peak allows it (recompute_profile.h), also with the results of
// blocks added up again. For at most 12 forward nodes, every set is compared. `peak_of` predicts
// all peaks exactly; time is modelled (analysis/modelled_time.cpp) for `kind`. Throws BudgetNotMet
// naming the least peak if no choice fits.
WithinBudget recompute_within(const Program& program, std::int64_t budget_bytes, DeviceKind kind,
                              const PeakOf& peak_of, bool fuses = false);

}  // namespace tracestep

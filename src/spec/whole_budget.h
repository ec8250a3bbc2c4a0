// Makes the programs of a step under a memory budget that is for all of them together, while each
// program chooses by itself what it computes again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "passes/recompute_budget.h"
#include "run/run_spec.h"

namespace tracestep {

// The programs or the joined program that were made for a step, with the peaks of their memory.
template <class Result>
struct MadeStep {
  Result result;
  std::int64_t peak_bytes = 0;     // The peak of the whole step.
  std::int64_t program_bytes = 0;  // The highest peak that one of its programs has by itself.
};

// Calls `make` until the peak of the step that it makes is within the step's budget. Each call
// gives every program a budget of its own: while one runs, the tensors of the others are held
// as well, so the next budget of a program is what the last try left of the step's. A step that
// fits is improved while more than 1/32 of its budget is left. Throws BudgetNotMet with a peak
// that suffices as the step's budget: the peak with the least budget that the programs can
// meet.
template <class Make>
auto made_within(RunSpec step, const Make& make) {
  constexpr int kMostTries = 4;
  constexpr std::int64_t kLeftParts = 32;
  const std::int64_t budget_bytes = step.recompute.budget_bytes;
  std::int64_t& own_bytes = step.recompute.budget_bytes;
  const auto solvers = std::make_shared<BudgetSolvers>();
  std::optional<decltype(make(step, solvers))> best;
  std::int64_t fits = 0, too_much = budget_bytes + 1;  // known budgets of a program
  for (int i = 0; i < kMostTries && fits + 1 < too_much; ++i) {
    try {
      auto made = make(step, solvers);
      const std::int64_t left = budget_bytes - made.peak_bytes;
      const std::int64_t next = made.program_bytes + left;
      (left < 0 ? too_much : fits) = own_bytes;
      if (left >= 0) best = std::move(made);
      if (left >= 0 && (next <= own_bytes || left <= budget_bytes / kLeftParts)) break;
      own_bytes = next > fits && next < too_much ? next : fits + (too_much - fits) / 2;
    } catch (const BudgetNotMet&) {
      break;
    }
  }
  if (best) return std::move(*best);
  std::optional<BudgetNotMet> least;
  own_bytes = 1;
  try {
    return make(step, solvers);
  } catch (const BudgetNotMet& error) {
    least = error;
  }
  own_bytes = least->least_peak_bytes();
  auto made = make(step, solvers);
  if (made.peak_bytes <= budget_bytes) return made;
  throw BudgetNotMet(budget_bytes, made.peak_bytes, least->least_name());
}

}  // namespace tracestep

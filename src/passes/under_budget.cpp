// The choices that passes make under a memory budget: each candidate is run through the passes that
// follow, and the peak of the result decides.
#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/memory_map.h"
#include "analysis/modelled_time.h"
#include "analysis/plan.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"
#include "passes/recompute.h"
#include "passes/update_passes.h"

namespace tracestep {
namespace {

// Returns `p` with early updates placed anew: after nodes that run again and read their weights.
Program settled(Program p, const PassOptions& o) {
  return o.updates_early() ? update_early(p) : std::move(p);
}

std::int64_t planned_bytes(const Program& step, const PassOptions& o) {
  return has_arena(o.run.executor)
             ? plan_step(step, o.context.traits).peak_bytes()
             : predicted_peak_bytes(step, plan_buffers(step), o.context.traits);
}

// Returns the peak of the program as the device runs it, in bytes.
std::int64_t peak_bytes_of(const Program& step, const PassOptions& o) {
  if (o.context.traits.computes_in_float64()) return planned_bytes(as_float64(step), o);
  return planned_bytes(step, o);
}

// Returns the modelled time of all that depends on a budget's choice of narrow copies and of what
// runs again; infinite if nothing fits. `program`: as `shadow` leaves it.
double us_within_budget(Program program, const PassOptions& o) {
  const DeviceKind kind = o.context.traits.kind;
  program = run_passes(std::move(program), o, "shadow", "recompute");
  try {
    return modelled_us(program, Phase::kForward, kind, will_fuse(o)) +
           modelled_us(program, Phase::kOptimizer, kind, will_fuse(o)) +
           o.solvers->within(program, o).again_us;
  } catch (const BudgetNotMet&) {
    return std::numeric_limits<double>::infinity();
  }
}

// True if the head's narrow copy gets rows of zeros after it, which make its products faster.
bool is_padded(Program program, const PassOptions& o) {
  if (!pads(o)) return false;
  program = run_passes(std::move(program), o, "shadow", "pad");
  return pad(program) != program;
}

}  // namespace

// A program and the solver of its budgets, which are for the peak after all remaining passes.
struct BudgetSolvers::Solved {
  Solved(const Program& p, PassOptions o)
      : program(p),
        options(std::move(o)),
        solver(
            program, options.context.traits.kind,
            [this](const Program& candidate) {
              return peak_bytes_of(run_passes(settled(candidate, options), options, "recompute"),
                                   options);
            },
            will_fuse(options)) {
    options.context.note = {};
    options.context.solvers = options.solvers = nullptr;  // of which this is a part
  }

  Program program;
  PassOptions options;
  BudgetSolver solver;
  std::int64_t budget_bytes = 0;
  WithinBudget found = {};  // for that budget
};

BudgetSolvers::BudgetSolvers() = default;
BudgetSolvers::~BudgetSolvers() = default;

WithinBudget BudgetSolvers::within(const Program& program, const PassOptions& o) {
  const auto known = std::ranges::find_if(all_, [&](const auto& solved) {
    return solved->options.run.gradients == o.run.gradients && solved->program == program;
  });
  Solved& solved =
      known != all_.end() ? **known : *all_.emplace_back(std::make_unique<Solved>(program, o));
  const std::int64_t budget_bytes = o.run.recompute.budget_bytes;
  if (solved.budget_bytes != budget_bytes) {
    solved.budget_bytes = 0;
    solved.found = solved.solver.within(budget_bytes);
    solved.budget_bytes = budget_bytes;
  }
  return solved.found;
}

bool recomputes(const PassOptions& o) {
  return o.differentiates() && o.run.recompute.kind != Recomputation::Kind::kNone;
}

Program recompute(const Program& p, const PassOptions& o) {
  if (o.run.recompute.kind != Recomputation::Kind::kBudget) {
    return settled(recompute(p, o.run.recompute), o);
  }
  WithinBudget found = o.solvers->within(p, o);
  if (o.context.note) o.context.note(words_of(found));
  return settled(std::move(found.program), o);
}

// Adds narrow copies, which take memory. Under a budget that the step does not meet as it is, it
// may pay to cast the weights of blocks again instead. The head's copy goes first: casting it takes
// the least time for its bytes, and it is not read any more when the gradient of the head is made,
// which is the fullest moment where the logits are large.
Program shadow(const Program& p, const PassOptions& o) {
  Program all = shadow(p);
  const bool may_cast = o.run.recompute.kind == Recomputation::Kind::kBudget && o.updates() &&
                        !o.context.has_gradients && !o.run.parallel.is_on() && !offloads(o) &&
                        !o.run.precision.float8;
  if (!may_cast) return all;
  const Program whole = run_passes(run_passes(all, o, "shadow", "recompute"), o, "recompute");
  if (peak_bytes_of(whole, o) <= o.run.recompute.budget_bytes) return all;
  const bool keeps_others = is_padded(all, o);
  Program kept = keeps_others ? std::move(all) : shadow(p, Shadows::kInBlocks);
  Program cast = shadow(p, keeps_others ? Shadows::kOutsideBlocks : Shadows::kNone);
  if (cast == kept) return kept;
  return us_within_budget(cast, o) < us_within_budget(kept, o) ? cast : kept;
}

}  // namespace tracestep

// Which forms of a step a command takes where the user names none: the fastest known ones among
// those whose numbers agree but for rounding. Commands that measure take none by themselves.
#pragma once

#include "spec/run_grid.h"

namespace tracestep::cli {

struct Forms {
  ExecutorKind executor = ExecutorKind::kEager;
  AttentionForm attention = AttentionForm::kNaive;
};

// For a run whose model is known.
Forms choose_forms(const RunSpec& run);

// Gives `run` the forms of which `grid` has none.
void take_forms(RunSpec& run, const RunGrid& grid, const Forms& forms);
// Says in a line which forms a run has, before it begins.
void say_forms(const RunSpec& run);

}  // namespace tracestep::cli

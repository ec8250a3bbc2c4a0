// Which forms of a step a command takes where the user names none: the fastest known ones among
// those whose numbers agree but for rounding. Commands that measure take none by themselves.
#pragma once

#include "cli/option_set.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

struct Forms {
  ExecutorKind executor = ExecutorKind::kEager;
  AttentionForm attention = AttentionForm::kNaive;
};

Forms choose_forms(const RunSpec& run);

// Reads them for the options of `set` that `grid` has no value for.
void take_forms(const OptionSet& set, const RunGrid& grid, const Forms& forms);
// Says in a line which forms a run has, before it begins.
void say_forms(const RunSpec& run);

}  // namespace tracestep::cli

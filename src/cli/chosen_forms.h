// Chooses the forms of a step that the user did not name: the fastest known ones among those whose
// results differ only by rounding. Commands that measure choose none. Also handles the options that
// a resumed training takes from its checkpoint.
#pragma once

#include "base/json.h"
#include "cli/option_set.h"
#include "spec/run_grid.h"
#include "weights/checkpoint_files.h"

namespace tracestep::cli {

struct Forms {
  ExecutorKind executor = ExecutorKind::kEager;
  AttentionForm attention = AttentionForm::kNaive;
};

// Chooses the forms for a run whose model is known.
Forms choose_forms(const RunSpec& run);

// Gives `run` each of the forms for which `grid` has no value.
void take_forms(RunSpec& run, const RunGrid& grid, const Forms& forms);
// Prints a line with the forms of a run before it begins.
void say_forms(const RunSpec& run);

// The options of `given` that a training's checkpoints keep, so that --resume alone continues it:
// those that belong to the run and not to this call. Left out are weights and tokenizer, which
// checkpoints hold themselves, and where results go.
Json kept_options(const OptionSet& set, const GivenOptions& given);

// Takes the checkpoint's options that are not in `given`, and prints them. `given` is a copy,
// because reading adds to it. Throws Error{kUsage} for a value that its option refuses, and
// Error{kInput} for text that is no list of options.
void take_kept_options(const OptionSet& set, GivenOptions given, const Checkpoint& checkpoint);

// The forms in a checkpoint's description, also if an older version wrote it, which did not store
// the forms that it chose.
Forms forms_of(const Json& meta);

}  // namespace tracestep::cli

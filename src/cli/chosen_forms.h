// Which forms of a step a command takes where the user names none: the fastest known ones among
// those whose numbers agree but for rounding. Commands that measure take none by themselves. And
// the options that a resumed training takes from its checkpoint.
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

// Needs a run whose model is known.
Forms choose_forms(const RunSpec& run);

// Gives `run` each of the forms for which `grid` has no value.
void take_forms(RunSpec& run, const RunGrid& grid, const Forms& forms);
// Says in a line which forms a run has, before it begins.
void say_forms(const RunSpec& run);

// The options of `given` that a training's checkpoints keep, so that --resume alone continues it:
// those that belong to the run and not to this call. Left out are weights and tokenizer, which
// checkpoints hold themselves, and where results go.
Json kept_options(const OptionSet& set, const GivenOptions& given);

// Reads from `checkpoint` what is not in `given`, and says it. `given`: a copy, as reading adds to
// it. Errors: kUsage for a value that its option refuses, kInput for what is no list of options.
void take_kept_options(const OptionSet& set, GivenOptions given, const Checkpoint& checkpoint);

// The forms by the description of a checkpoint, also of a version that did not store the forms that
// it chose by itself.
Forms forms_of(const Json& meta);

}  // namespace tracestep::cli

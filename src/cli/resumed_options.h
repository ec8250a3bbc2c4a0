// The options of a training that its checkpoints keep, so that --resume alone continues it.
#pragma once

#include "base/json.h"
#include "cli/chosen_forms.h"
#include "cli/option_set.h"
#include "train/checkpoint_files.h"

namespace tracestep::cli {

// The options of `given` that checkpoints keep, since they belong to the run and not to this call.
// Left out are weights and tokenizer, which checkpoints hold themselves, and where results go.
Json kept_options(const OptionSet& set, const GivenOptions& given);

// Reads from `checkpoint` what is not in `given`, and says it. `given`: a copy, as reading adds to
// it. Errors: kUsage for a value that its option refuses, kInput for what is no list of options.
void take_kept_options(const OptionSet& set, GivenOptions given, const Checkpoint& checkpoint);

// How the run did its steps, by the description of a checkpoint: for one of a version that did not
// keep what it chose by itself.
Forms forms_of(const Json& meta);

}  // namespace tracestep::cli

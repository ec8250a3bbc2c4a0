// What must be the same for a resumed run to continue the interrupted one exactly.
#pragma once

#include "base/json.h"
#include "train/loop.h"

namespace tracestep {

// Kept in every checkpoint. `validation` may be nullptr.
Json fingerprint(const TrainOptions& options, const TokenSource& tokens,
                 const TokenSource* validation);

// Throws Error{kUsage} naming the flag that differs, what it was and what it is now.
void check_same_run(const Json& saved, const Json& now);

}  // namespace tracestep

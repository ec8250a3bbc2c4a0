// Notices before the first step of a training: what will not be kept, and what validations read.
#pragma once

#include "train/loop.h"

namespace tracestep::cli {

// Warns if neither weights nor checkpoints of the run will be kept.
void say_what_is_lost(const TrainOptions& options);

// Says how full the rows are if the run packs documents into them.
void say_packing(const TrainOptions& options, const TokenSourcePtr& tokens);
// Says how many of the held-out tokens a validation reads, and how many training steps take as
// long.
void say_validation(const TrainOptions& options, const TokenSourcePtr& held_out);

}  // namespace tracestep::cli

// Notices before a training's first step: what it will not keep, and what its validations read.
#pragma once

#include "train/loop.h"

namespace tracestep::cli {

// Warns if nothing of the run will be kept.
void say_what_is_lost(const TrainOptions& options);

// Says how full the rows are, where the run packs them.
void say_packing(const TrainOptions& options, const TokenSourcePtr& tokens);
// Says how many of the tokens set aside a validation reads, and how many steps take as long.
void say_validation(const TrainOptions& options, const TokenSourcePtr& held_out);

}  // namespace tracestep::cli

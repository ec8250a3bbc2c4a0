// Detects updates that are too small for 16-bit weights, because rounding restores the old weight.
#pragma once

#include "runtime/store.h"
#include "train/loop.h"

namespace tracestep {

// The share of all parameters that a step changes. AdamW moves a parameter by about `rate`; with
// rounding to nearest, it stays if the distance to the next number is more than twice that. 1 for
// float32 parameters.
double share_that_moves(const Store& store, double rate);

// Warns if the highest learning rate of the run changes fewer than half of the parameters.
void warn_of_small_updates(const Store& store, const TrainOptions& options);

}  // namespace tracestep

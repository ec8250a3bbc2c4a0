// Updates that are too small for weights in 16 bits, which are rounded to the weight as it was.
#pragma once

#include "runtime/store.h"
#include "train/loop.h"

namespace tracestep {

// The share of all parameters that a step moves: AdamW moves each by about the rate, and to nearest
// that is nothing where the next number lies further than twice as far. 1 for parameters in
// float32.
double share_that_moves(const Store& store, double rate);

// Warns where the highest rate of the run moves fewer than half of the parameters.
void warn_of_small_updates(const Store& store, const TrainOptions& options);

}  // namespace tracestep

// The fields of TrainOptions that decide what a training computes and for how long, as a table. The
// flags of `train`, and what a resumed run must not change, follow from it.
#pragma once

#include <span>

#include "spec/spec_field.h"
#include "train/loop.h"

namespace tracestep {

using TrainField = SpecField<TrainOptions>;

// The fields in the order of help texts; fields of the run itself are in spec/fields.h.
std::span<const TrainField> train_fields();

}  // namespace tracestep

// The fields of a run that describe the model.
#pragma once

#include "spec/fields.h"

namespace tracestep {

// The upper limits of a model's sizes and of its vocabulary, far beyond any model.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;

// Adds the field of the preset, and those of the five sizes that a preset sets.
void add_model_fields(FieldRows<RunSpec>& rows);
// Adds the fields of the architecture; a preset or a model's file sets all of them.
void add_architecture_fields(FieldRows<RunSpec>& rows);

}  // namespace tracestep

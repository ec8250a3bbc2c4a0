// The part of the table of fields that is about the model.
#pragma once

#include "spec/fields.h"

namespace tracestep {

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;  // far beyond any model
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;

// The preset and the five sizes that it stands for.
void add_model_fields(FieldRows<RunSpec>& rows);
// Adds the fields that tell architectures apart; a preset or a file of a model sets all of them.
void add_architecture_fields(FieldRows<RunSpec>& rows);

}  // namespace tracestep

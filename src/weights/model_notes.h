// Collects notes on the models of a command that a user should know: each is printed once, and
// added to the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/config.h"

namespace tracestep {

// The model as its folder has it; it becomes untied if its weights have a head of their own. With
// `runs`, a model with unknown properties throws Error{kInput}; else a note names them. Also notes
// a context beyond the model's positions.
ModelConfig checked_model(ModelConfig model, std::int64_t context, bool runs);

// Adds a note if the context is longer than the positions for which the model was made. `origin`:
// the folder of the published model from which the weights were trained; empty: none.
void note_positions(const ModelConfig& model, const std::filesystem::path& origin,
                    std::int64_t context);

// The notes so far.
const std::vector<std::string>& model_notes();

}  // namespace tracestep

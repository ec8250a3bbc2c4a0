// Notes on the models of a command, which its user should know beside the result: lines that are
// said once, and kept for the notes of the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/config.h"

namespace tracestep {

// The model as its folder has it: untied where its weights hold a head of their own. `runs`: Error
// {kInput} where the model is not wholly known; else notes say what is not. Notes also a context
// beyond the model's positions.
ModelConfig checked_model(ModelConfig model, std::int64_t context, bool runs);

// Notes a context that is longer than the positions that a model was made for. `origin`: the folder
// of the published model that the weights began from; empty: none.
void note_positions(const ModelConfig& model, const std::filesystem::path& origin,
                    std::int64_t context);

// The notes so far.
const std::vector<std::string>& model_notes();

}  // namespace tracestep

// Determines the model of a training, an evaluation or generated text, from what the user gives,
// from the weights and from the tokenizer.
#pragma once

#include "spec/run_grid.h"
#include "tokens/tokenizer.h"
#include "weights/weights.h"

namespace tracestep {

// The model for these tokens. Its sizes are those that are given, else those of the weights, else
// those of the base of `grid`; its vocabulary is the one given, that of the weights or that of the
// tokenizer. Throws Error{kUsage} if these disagree, and Error{kInput} if the weights are no model.
ModelConfig model_for(const RunGrid& grid, const Weights* weights, const Tokenizer* tokenizer);
// Sets run.lora to the adapters that the weights hold, unless the run itself says what is trained.
void take_adapters(RunSpec& run, const Weights* weights);

}  // namespace tracestep

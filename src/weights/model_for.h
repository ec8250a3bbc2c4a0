// The model of a training, an evaluation or generated text: of what is given, what the weights say
// and what the tokenizer needs.
#pragma once

#include "spec/run_grid.h"
#include "tokens/tokenizer.h"
#include "weights/weights.h"

namespace tracestep {

// The model for these tokens. Its sizes are those given, else from the weights, else from the
// base of `grid`; its vocabulary is that given, of the weights or of the tokenizer. Errors: kUsage
// when they disagree, kInput when the weights are no model.
ModelConfig model_for(const RunGrid& grid, const Weights* weights, const Tokenizer* tokenizer);
// Takes the adapters that the weights hold, unless the run says itself what of the model is
// trained.
void take_adapters(RunSpec& run, const Weights* weights);

}  // namespace tracestep

// A training of a tiny model, of which tests change what they are about.
#pragma once

#include "train/trainer.h"

namespace tracestep::testing {

// Returns 500 tokens below 23.
inline TokenSourcePtr some_tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 500; ++i) tokens.push_back(i * 7 % 23);
  return memory_tokens("tokens", tokens);
}

// Options to train two layers of width 16 on those tokens, two sequences of eight at a time.
inline TrainOptions tiny_training() {
  TrainOptions out;
  out.run.model = {.vocab = 23, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  out.run.shape = {.batch = 2, .context = 8};
  return out;
}

}  // namespace tracestep::testing

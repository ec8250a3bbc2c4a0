// The peak of the same cell in another implementation, plain PyTorch code, by closed forms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/step_program.h"

namespace tracestep {

struct Accounting {
  // How many tensors of B·H·T² each layer keeps: 2 for exp and weights, 3 with masked scores.
  int saved_scores = 2;
  // Whole graphs that are alive at once. A loop that times the forward pass and keeps the last
  // result while it computes the next one holds two; a backward pass frees the graph.
  int live_graphs = 2;
  // Gradients stay allocated between steps: they are set to zero instead of None.
  bool kept_gradients = false;
};

struct AccountedPeak {
  std::int64_t bytes = 0;
  std::string formula;  // with this cell's numbers
};

// Float32, temporaries left out; gradients set to none after every step unless they are kept.
// Modes: `forward` holds weights and the live graphs; `forward-backward` one graph, and gradients
// while they grow (all along when kept); `step` AdamW's states besides. Error{kUsage} for inference
// and other precisions, which have no closed form here.
AccountedPeak accounted_peak(const RunSpec& step, const Accounting& as);

}  // namespace tracestep

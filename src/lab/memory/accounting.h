// Computes the peak that plain PyTorch code would have for the same cell, by closed forms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/step_program.h"

namespace tracestep {

struct Accounting {
  // How many tensors of B·H·T² elements each layer keeps: 2 for the exponentials and the attention
  // weights, 3 with the masked scores.
  int saved_scores = 2;
  // How many whole autograd graphs are alive at once. A loop that times forward and keeps the last
  // result while it computes the next holds two; backward frees its graph.
  int live_graphs = 2;
  // True: gradients stay allocated between steps, because they are set to zero and not to None.
  bool kept_gradients = false;
};

struct AccountedPeak {
  std::int64_t bytes = 0;
  std::string formula;  // The formula with this cell's numbers.
};

// Returns the peak in float32, without temporaries. `forward` holds the weights and the live
// graphs; `forward-backward` holds one graph and the gradients as they are made (all of them if
// kept_gradients); `step` also holds AdamW's states. Throws Error{kUsage} for inference and for
// other precisions, which have no closed form here.
AccountedPeak accounted_peak(const RunSpec& step, const Accounting& as);

}  // namespace tracestep

// Chooses the next token from a vector of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/host_tensor.h"

namespace tracestep {

struct Sampling {
  double temperature = 1.0;  // The temperature; 0: the most likely token is always chosen.
  std::int64_t top_k = 0;    // Only the k most likely tokens may be chosen; 0: all.
  // Only the most likely tokens that together have this probability may be chosen.
  double top_p = 1.0;
};

// Reads [.., V] of any floating dtype as float32; float64 is rounded. Returns false if a logit is
// infinite or NaN.
bool read_logits(const TensorView& logits, std::vector<float>& out);

// Samples the index of a token; `uniform` in [0, 1) decides. Among equal logits the first one
// precedes. It makes one pass over the logits, and uses a heap where the order counts, without
// sorting the vocabulary. Source: Holtzman et al. 2020 (nucleus sampling).
std::int64_t sample(std::span<const float> logits, const Sampling& how, double uniform);

}  // namespace tracestep

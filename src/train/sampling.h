// The next token from a vector of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/host_tensor.h"

namespace tracestep {

struct Sampling {
  double temperature = 1.0;  // 0: always the most likely
  std::int64_t top_k = 0;    // only the k most likely; 0: all
  double top_p = 1.0;        // only the most likely that make up this probability
};

// [.., V] of any floating dtype as float32, float64 rounded. False: one is infinite or NaN.
bool read_logits(const TensorView& logits, std::vector<float>& out);

// The index of a token; `uniform` in [0, 1) decides. Among equal logits the first is taken first.
// Takes one pass over the logits, and a heap where the order counts, without sorting the
// vocabulary. Source: Holtzman et al. 2020 (nucleus sampling).
std::int64_t sample(std::span<const float> logits, const Sampling& how, double uniform);

}  // namespace tracestep

// Decides which elements a call of dropout keeps. It depends only on the call's stream, the number
// of the batch and the element's index, so it is the same on every device, for any number of
// threads and ranks, and in recomputation. Kernels of all back ends include it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"

namespace tracestep::ops {

// Returns the random words of the four elements from 4·group on. `batch`: the number of the batch
// in the run.
constexpr Uint32x4 dropout_words(std::int64_t stream, std::int64_t batch, std::uint64_t group) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto s = static_cast<std::uint64_t>(stream), b = static_cast<std::uint64_t>(batch);
  return philox4x32({low(group), high(group), low(b), high(b)}, {low(s), high(s) ^ 0x64726f70u});
}

// Returns the least word with which an element is kept: it is kept with probability 1 - rate.
inline std::uint32_t dropout_threshold(double rate) {
  return static_cast<std::uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1.0));
}

// Returns the factor of kept elements; 0 where none is kept.
inline double dropout_scale(double rate) {
  return rate < 1.0 ? 1.0 / (1.0 - rate) : 0.0;
}

}  // namespace tracestep::ops

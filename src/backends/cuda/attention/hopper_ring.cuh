// The state of a ring of buffers between a producer and its consumers.
#pragma once

#include <cstdint>

namespace tracestep::cuda {

// A position in a ring of kStages buffers, and the parity of the round.
template <int kStages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace tracestep::cuda

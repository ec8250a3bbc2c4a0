// AdamW's moments in 8 bits, in blocks with one scale each (Dettmers et al. 2022, "8-bit Optimizers
// via Block-wise Quantization").
#pragma once

#include <cstdint>

namespace tracestep {

// The number of elements, consecutive in row-major order, that share a scale; the last block of a
// tensor may be shorter.
inline constexpr std::int64_t kCodedBlock = 128;

constexpr std::int64_t coded_blocks(std::int64_t elements) {
  return (elements + kCodedBlock - 1) / kCodedBlock;
}

}  // namespace tracestep

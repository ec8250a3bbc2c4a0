// Facts about the op gemv, besides its record, that passes and kernels share.
#pragma once

#include <cstdint>

#include "ir/attrs.h"

namespace tracestep {

// A row must be a multiple of this many elements, which are read as one word.
inline constexpr std::int64_t kGemvWord = 8;
// The most bytes of x, scale and shift together, because they lie in a block's shared memory.
inline constexpr std::int64_t kMostGemvBytes = 64 << 10;

// The indices of the operands after x and w (-1: the call lacks it), and `count` of all operands.
struct GemvOperands {
  int scale = -1, shift = -1, bias = -1, c = -1, count = 2;

  explicit GemvOperands(const Attrs& attrs) {
    if (attrs.text("norm") != "none") scale = count++;
    if (attrs.flag("shifted")) shift = count++;
    if (attrs.flag("biased")) bias = count++;
    if (attrs.flag("added")) c = count++;
  }
};

}  // namespace tracestep

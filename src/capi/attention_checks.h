// Checks which shapes the C interface accepts. It is plain C++, so that tests need no CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "capi/tracestep_attention.h"

namespace tracestep::capi {

// The most rows of a head and of all heads, and the largest offset: sums of a row's number, the
// offset and the window fit into 32 bits, and so does a number for each tile of 64 rows over all
// heads; the bytes of a tensor with as many rows fit into 64 bits.
constexpr std::int64_t kMostRows = std::int64_t{1} << 29;
constexpr std::int64_t kMostRowsOfAllHeads = std::int64_t{1} << 36;
constexpr std::int64_t kMostOffset = std::int64_t{1} << 30;

inline bool has_sizes(const tracestep_attention_shape& s) {
  if (s.batch < 0 || s.heads < 0 || s.queries < 0 || s.keys < 0) return false;
  const std::int64_t rows = std::max(s.queries, s.keys);
  if (s.width < 1 || s.width > 256 || rows > kMostRows ||
      std::abs(std::int64_t{s.offset}) > kMostOffset)
    return false;
  const std::int64_t padded = (rows / 128 + 1) * 128;
  return std::int64_t{s.batch} * s.heads <= kMostRowsOfAllHeads / padded;
}

// Checks a shape, and returns a tracestep_status.
inline int checked(const tracestep_attention_shape& s) {
  if (s.dtype < TRACESTEP_FLOAT32 || s.dtype > TRACESTEP_FLOAT16) return TRACESTEP_BAD_DTYPE;
  const bool shares = s.key_heads == 0 || (s.key_heads > 0 && s.heads % s.key_heads == 0);
  const bool sees = s.window == 0 || (s.window > 0 && s.causal != 0);
  const bool scales = s.scale > 0 && std::isfinite(s.scale) && s.cap >= 0 && std::isfinite(s.cap);
  const bool is_family = s.family >= TRACESTEP_FAMILY_AUTO && s.family <= TRACESTEP_FAMILY_HOPPER;
  return has_sizes(s) && shares && sees && scales && is_family ? TRACESTEP_SUCCESS
                                                               : TRACESTEP_BAD_SHAPE;
}

}  // namespace tracestep::capi

// Numbers of 4 bits that are as far apart as quantiles of a normal distribution (Dettmers et al.
// 2023, "QLoRA", appendix E), in blocks with one magnitude each, which are numbers of 8 bits
// themselves (section 3; their values: Dettmers et al. 2022, "8-bit Optimizers", section 1.3).
// Hosts and devices compute both from here.
#pragma once

#include <cstdint>

#include "base/integers.h"

namespace tracestep {

inline constexpr std::int64_t kNf4Block = 64;   // elements, neighbours in row-major order
inline constexpr std::int64_t kNf4Group = 256;  // blocks whose magnitudes have one scale

inline constexpr float kNf4Values[16] = {-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};

// Value `code` of 8 bits, of 256 from smallest to largest: 127 is 0, 255 is 1, and between lie the
// middles of 2^i equal parts of 0.1 to 1, times 10^(i - 6), for i from 0 to 6, of either sign.
constexpr float dynamic_value(int code) {
  if (code == 127 || code == 255) return code == 127 ? 0.0F : 1.0F;
  const int magnitude = (code > 127 ? code - 127 : 127 - code);  // 1 to 127: 2^i + j
  int i = 0;
  while (magnitude >> (i + 1) > 0) ++i;
  double scale = 1.0;
  for (int n = i; n < 6; ++n) scale /= 10.0;
  const int parts = 1 << i, part = magnitude - parts;
  const double middle = 0.1 + 0.9 * (part + 0.5) / parts;
  return static_cast<float>((code > 127 ? middle : -middle) * scale);
}

constexpr std::int64_t nf4_blocks(std::int64_t elements) {
  return ceil_div(elements, kNf4Block);
}
constexpr std::int64_t nf4_groups(std::int64_t elements) {
  return ceil_div(nf4_blocks(elements), kNf4Group);
}

}  // namespace tracestep

// The 16 numbers of NF4, which are as far apart as quantiles of a normal distribution (Dettmers et
// al. 2023, "QLoRA", appendix E). They are stored in blocks with one magnitude each, and the
// magnitudes are themselves quantized to 8 bits (section 3; their values: Dettmers et al. 2022,
// "8-bit Optimizers", section 1.3). Host and device code share this file.
#pragma once

#include <cstdint>

#include "base/integers.h"

namespace tracestep {

// The elements of a block, consecutive in row-major order.
inline constexpr std::int64_t kNf4Block = 64;
// The number of blocks whose magnitudes share a scale.
inline constexpr std::int64_t kNf4Group = 256;

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

// The 256 values of magnitudes, from smallest to largest: 0, 1, and the middles of 2^i equal parts
// of 0.1 to 1, times 10^(i - 6), for i from 0 to 6, with either sign. Each step is rounded to
// float32 as in the original code, so that all bits are the same.
struct DynamicValues {
  float at[256] = {};

  constexpr DynamicValues() {
    at[255] = 1.0F;
    float scale = 1e-6F;
    for (int i = 0; i < 7; ++i) {
      const int parts = 1 << i;
      for (int part = 0; part < parts; ++part) {
        const float middle = (bound(part, parts) + bound(part + 1, parts)) / 2.0F;
        at[127 + parts + part] = scale * middle;
        at[127 - parts - part] = -scale * middle;
      }
      constexpr float kScales[] = {1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F, 1.0F};
      scale = kScales[i];
    }
  }

 private:
  // Returns bound i of `parts` equal parts of [0.1, 1], from the nearer end, as the original does.
  static constexpr float bound(int i, int parts) {
    const double step = static_cast<double>((1.0F - 0.1F) / static_cast<float>(parts));
    const bool is_low = i < (parts + 1) / 2;
    return static_cast<float>(is_low ? static_cast<double>(0.1F) + step * i
                                     : 1.0 - step * (parts - i));
  }
};

constexpr std::int64_t nf4_blocks(std::int64_t elements) {
  return ceil_div(elements, kNf4Block);
}
constexpr std::int64_t nf4_groups(std::int64_t elements) {
  return ceil_div(nf4_blocks(elements), kNf4Group);
}

}  // namespace tracestep

// The codes of AdamW's moments as a warp reads and writes them: a block of 128 neighbours, four in
// each lane, whose largest magnitude all lanes agree on.
#pragma once

#include "backends/cuda/updates/adamw.cuh"
#include "ops/moment_codes.h"
#include "ops/scalar/moment_codes.h"

namespace tracestep::cuda::updates {

constexpr int kWarp = 32;
constexpr int kFour = 4;  // elements of a lane
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kWarp * kFour == kCodedBlock);

// Decodes element j of a word that holds four codes.
template <class Moment>
__device__ inline Real decoded(std::uint32_t word, int j, float scale) {
  return scalar::MomentFromCode<Moment>()(Bits{(word >> (8 * j)) & 0xffu}, Real{scale});
}

struct Coded {
  std::uint32_t word;
  float scale;
};

// Encodes a lane's four moments by the block's largest. `noise`: v takes the upper half of it.
template <class Moment>
__device__ inline Coded encoded(const Pack<float, kFour>& x, const Bits (&noise)[kFour]) {
  std::uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < kFour; ++j) {
    const std::uint32_t magnitude = __float_as_uint(x.at[j]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  const std::uint32_t scale = scalar::MomentScale()(__reduce_max_sync(kAllLanes, most));
  const Real inverse{__uint_as_float(scalar::MomentScale::inverse(scale))};
  std::uint32_t codes[kFour];
#pragma unroll
  for (int j = 0; j < kFour; ++j) {
    const Bits random = Moment::kSigned ? noise[j] : noise[j] >> 16;
    codes[j] = scalar::MomentCode<Moment>()(Real{x.at[j]}, inverse, random).v;
  }
  const std::uint32_t low = __byte_perm(codes[0], codes[1], 0x0040),
                      high = __byte_perm(codes[2], codes[3], 0x0040);
  return {__byte_perm(low, high, 0x5410), __uint_as_float(scale)};
}

}  // namespace tracestep::cuda::updates

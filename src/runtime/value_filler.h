// The interface of devices that fill their own memory with random values, so that weights for a
// measurement need not be made by the host and copied; a device implements it besides Device.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/random.h"

namespace tracestep {

// Values uniform around 0. Four neighbouring ones come from one draw of CounterRng(seed, stream),
// so each depends only on seed, stream, `step` and its index.
struct UniformValues {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // stream_hash() of the tensor's name
  double step = 0;           // The distance of neighbouring values, 2^-32 of the whole range.
};

// Returns the random words from which values 4·group to 4·group + 3 are made.
constexpr Uint32x4 words_of(const UniformValues& values, std::uint64_t group) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({low(group), high(group), low(values.stream), high(values.stream)},
                    {low(values.seed), high(values.seed)});
}

constexpr double value_of(const UniformValues& values, std::uint32_t word) {
  return values.step * (static_cast<double>(word) - 0x1p31);
}

class ValueFiller {
 public:
  virtual ~ValueFiller() = default;
  // Sets `count` elements of device memory, rounded to nearest even in float32 and then to `dtype`,
  // before any work issued later. False where it has no such dtype, and nothing is set.
  virtual bool fill_uniform(void* data, DType dtype, std::int64_t count,
                            const UniformValues& values) = 0;
};

}  // namespace tracestep

// The two 8-bit floating types as storage types (Micikevicius et al., "FP8 Formats for Deep
// Learning", 2022). Conversions round to nearest, ties to even, and saturate: what is larger than
// the largest number, infinities too, becomes that number; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tracestep {

// A type with 4 exponent bits and 3 mantissa bits. It has no infinities; NaN is the code with all
// bits set, with either sign.
struct F8E4M3 {
  static constexpr int kMantissaBits = 3, kBias = 7;
  static constexpr std::uint32_t kLargest = 0x7e;  // 448
  static constexpr std::uint32_t kNaN = 0x7f;
  std::uint8_t bits = 0;
};
// A type with 5 exponent bits and 2 mantissa bits: the upper half of a float16.
struct F8E5M2 {
  static constexpr int kMantissaBits = 2, kBias = 15;
  static constexpr std::uint32_t kLargest = 0x7b;  // 57344
  static constexpr std::uint32_t kNaN = 0x7e;
  std::uint8_t bits = 0;
};

namespace float8 {

// Returns 2^e as a float32, for e from -126 to 127.
constexpr float power_of_two(int e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

template <class F8>
float decoded(F8 x) {
  constexpr int kBits = F8::kMantissaBits, kBias = F8::kBias;
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x80u) << 24;
  const std::uint32_t magnitude = x.bits & 0x7fu, mantissa = magnitude & ((1u << kBits) - 1);
  const std::uint32_t exponent = magnitude >> kBits;
  if (magnitude > F8::kLargest) {
    const bool is_infinity = F8::kNaN - F8::kLargest > 1 && mantissa == 0;
    return std::bit_cast<float>(sign | (is_infinity ? 0x7f800000u : 0x7fc00000u));
  }
  if (exponent == 0) {  // zero or subnormal
    const float value = static_cast<float>(mantissa) * power_of_two(1 - kBias - kBits);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - kBias) << 23) | mantissa << (23 - kBits));
}

}  // namespace float8

inline float to_float(F8E4M3 x) {
  return float8::decoded(x);
}
inline float to_float(F8E5M2 x) {
  return float8::decoded(x);
}

template <class F8>
F8 to_float8(float x) {
  constexpr int kBits = F8::kMantissaBits, kBias = F8::kBias;
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {F8::kNaN};  // without its sign, as GPUs convert it
  std::uint32_t code;
  if (magnitude < static_cast<std::uint32_t>(128 - kBias) << 23) {
    // Below the least normal number: float32 addition rounds at the distance of subnormals.
    constexpr float kShift = float8::power_of_two(24 - kBias - kBits);
    const float shifted = std::bit_cast<float>(magnitude) + kShift;
    code = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift);
  } else {
    constexpr int kDropped = 23 - kBits;
    const std::uint32_t moved = magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23);
    code = (moved + (1u << (kDropped - 1)) - 1 + ((moved >> kDropped) & 1u)) >> kDropped;
  }
  if (code > F8::kLargest) code = F8::kLargest;
  return {static_cast<std::uint8_t>(sign | code)};
}

}  // namespace tracestep

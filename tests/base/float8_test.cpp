// The 8-bit formats against their definition, code by code, and every rounding between two codes.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tracestep {
namespace {

// (-1)^s · 2^(e - bias) · (1 + m / 2^bits), without the leading 1 for e = 0.
double by_definition(unsigned code, int mantissa_bits, int bias) {
  const int fraction = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const int exponent = static_cast<int>(code & 0x7fu) >> mantissa_bits;
  const int significand = fraction + (exponent == 0 ? 0 : 1 << mantissa_bits);
  const double magnitude = std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

template <class F8>
float decoded(unsigned code) {
  return to_float(F8{static_cast<std::uint8_t>(code)});
}
template <class F8>
unsigned encoded(float x) {
  return to_float8<F8>(x).bits;
}

template <class F8>
class Float8Test : public ::testing::Test {};

using Formats = ::testing::Types<F8E4M3, F8E5M2>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, EveryCodeIsWhatTheFormatSays) {
  constexpr bool kIsE4M3 = std::is_same_v<TypeParam, F8E4M3>;
  for (unsigned code = 0; code < 256; ++code) {
    const float value = decoded<TypeParam>(code);
    const unsigned magnitude = code & 0x7fu;
    if (kIsE4M3 ? magnitude == 0x7f : magnitude > 0x7c) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(decoded<TypeParam>(encoded<TypeParam>(value)))) << code;
    } else if (!kIsE4M3 && magnitude == 0x7c) {
      EXPECT_EQ(value, code == 0x7c ? INFINITY : -INFINITY);
    } else {
      EXPECT_EQ(value, by_definition(code, kIsE4M3 ? 3 : 2, kIsE4M3 ? 7 : 15)) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80u) << code;
      EXPECT_EQ(encoded<TypeParam>(value), code);
    }
  }
  EXPECT_EQ(decoded<TypeParam>(TypeParam::kLargest), kIsE4M3 ? 448.0f : 57344.0f);
}

TYPED_TEST(Float8Test, RoundsToTheNearerCodeAndTiesToTheEvenOne) {
  for (unsigned code = 0; code < TypeParam::kLargest; ++code) {
    const float low = decoded<TypeParam>(code), high = decoded<TypeParam>(code + 1);
    const float middle = (low + high) / 2;  // exact: it has one bit more
    for (unsigned sign : {0u, 0x80u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(encoded<TypeParam>(s * middle), sign | (code + code % 2)) << code;
      EXPECT_EQ(encoded<TypeParam>(s * std::nextafter(middle, 0.0f)), sign | code);
      EXPECT_EQ(encoded<TypeParam>(s * std::nextafter(middle, high)), sign | (code + 1));
      EXPECT_EQ(encoded<TypeParam>(s * std::nextafter(low, high)), sign | code);
      EXPECT_EQ(encoded<TypeParam>(s * std::nextafter(high, low)), sign | (code + 1));
    }
  }
}

TYPED_TEST(Float8Test, SaturatesAndKeepsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float largest = decoded<TypeParam>(TypeParam::kLargest);
  for (float x : {largest, std::nextafter(largest, kInfinity), 1.1f * largest, 2 * largest, 1e30f,
                  std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(encoded<TypeParam>(x), TypeParam::kLargest) << x;
    EXPECT_EQ(encoded<TypeParam>(-x), 0x80u | TypeParam::kLargest) << x;
  }
  EXPECT_EQ(encoded<TypeParam>(std::numeric_limits<float>::quiet_NaN()), TypeParam::kNaN);
  EXPECT_EQ(encoded<TypeParam>(-std::numeric_limits<float>::quiet_NaN()), TypeParam::kNaN);
  EXPECT_EQ(encoded<TypeParam>(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(encoded<TypeParam>(-0.0f), 0x80u);
}

}  // namespace
}  // namespace tracestep

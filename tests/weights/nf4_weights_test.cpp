// Weights in 4 bits, beside what bitsandbytes 0.50 makes of the same tensors on a CPU
// (quantize_4bit, nf4, blocks of 64, compressed statistics): codes and magnitudes bit for bit,
// scales and the offset but for last bits, as sums have another order. Magnitudes of the float32
// tensor are those of its plain formula (the nearest value): its fast kernel has two of 384
// otherwise, which lie within 2e-5 of the middle between two values.
#include "weights/nf4_weights.h"

#include <gtest/gtest.h>

#include "ops/nf4_codes.h"

namespace tracestep {
namespace {

std::uint64_t fnv(const HostTensor& x) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : x.bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

// 384 blocks, and so two groups of magnitudes.
HostTensor weight() {
  HostTensor out = HostTensor::zeros(DType::kF32, {192, 128});
  const auto w = out.as<float>();
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto hash = static_cast<float>(static_cast<int>(i * 7919 % 2003) - 1001) / 1001.0F;
    w[i] = hash * (static_cast<float>(1 + i / 64 % 17) / 8.0F);
  }
  return out;
}

struct Expected {
  DType dtype;
  std::uint64_t codes, magnitudes;
  float first_scale, second_scale, offset;
};

TEST(Nf4WeightsTest, CodesAreThoseOfBitsandbytes) {
  constexpr Expected kExpected[] = {{DType::kF32, 0x9a18fec43a9554d5, 0x237585cd2b7a5dc7,
                                     0x1.05acd8p+0F, 0x1.0521b8p+0F, 0x1.1a5328p+0F},
                                    {DType::kBF16, 0xdaf970d35ed3d582, 0x55095cb2c9565a80,
                                     0x1.05abaap+0F, 0x1.05abaap+0F, 0x1.1a5456p+0F}};
  for (const Expected& e : kExpected) {
    const Nf4Weights out = to_nf4(as_dtype(weight(), e.dtype));
    EXPECT_EQ(out.codes.shape, (Shape{192, 64}));
    EXPECT_EQ(fnv(out.codes), e.codes) << name_of(e.dtype);
    EXPECT_EQ(fnv(out.magnitudes), e.magnitudes) << name_of(e.dtype);
    EXPECT_FLOAT_EQ(out.scales.as<float>()[0], e.first_scale);
    EXPECT_FLOAT_EQ(out.scales.as<float>()[1], e.second_scale);
    EXPECT_FLOAT_EQ(out.offset.as<float>()[0], e.offset);
  }
}

TEST(Nf4WeightsTest, ZerosAndLargeValuesAreCoded) {
  HostTensor zeros = HostTensor::zeros(DType::kF32, {2, 64});
  const Nf4Weights none = to_nf4(zeros);
  for (const std::uint8_t pair : none.codes.as<std::uint8_t>()) EXPECT_EQ(pair, 0x77);
  EXPECT_EQ(none.offset.as<float>()[0], 0.0F);
  zeros.as<float>()[3] = -1e30F;
  EXPECT_EQ(to_nf4(zeros).codes.as<std::uint8_t>()[1], 0x70);
}

// Ranks that divide a matrix have a scale for fewer blocks, and rows of magnitudes.
TEST(Nf4WeightsTest, ScalesOfFewerBlocksAreRepeated) {
  const Nf4Weights codes = to_nf4(weight());  // 384 blocks, 2 of a row
  const auto more = with_shape(codes.scales, {192, 1}, 384);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->as<float>()[127], codes.scales.as<float>()[0]);
  EXPECT_EQ(more->as<float>()[128], codes.scales.as<float>()[1]);
  EXPECT_EQ(with_shape(*more, {2}, 384)->bytes, codes.scales.bytes);
  EXPECT_EQ(with_shape(codes.magnitudes, {192, 2}, 384)->bytes, codes.magnitudes.bytes);
  EXPECT_FALSE(with_shape(codes.magnitudes, {100}, 384));
  EXPECT_FALSE(with_shape(codes.scales, {100}, 384));
  const HostTensor wide = from_nf4(codes);
  EXPECT_EQ(from_nf4({codes.codes, codes.magnitudes, *more, codes.offset}).bytes, wide.bytes);
}

// 127 is 0, 255 is 1, and every other value has one of the other sign.
TEST(Nf4WeightsTest, MagnitudesRiseFromCodeToCode) {
  constexpr DynamicValues values;
  for (int code = 1; code < 256; ++code) EXPECT_LT(values.at[code - 1], values.at[code]);
  for (int i = 1; i <= 127; ++i) EXPECT_EQ(values.at[127 + i], -values.at[127 - i]);
  EXPECT_EQ(values.at[127], 0.0F);
  EXPECT_EQ(values.at[255], 1.0F);
}

}  // namespace
}  // namespace tracestep

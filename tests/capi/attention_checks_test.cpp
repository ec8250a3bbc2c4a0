// The shapes that the C interface refuses; needs neither CUDA nor the interface's library.
#include "capi/attention_checks.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "planning/cuda_attention.h"

namespace tracestep::capi {
namespace {

tracestep_attention_shape small_shape() {
  tracestep_attention_shape s{};
  s.dtype = TRACESTEP_BFLOAT16;
  s.batch = s.heads = 1;
  s.queries = s.keys = 8;
  s.width = 64;
  s.scale = 0.125F;
  return s;
}

int status_with(int32_t tracestep_attention_shape::*member, int32_t value) {
  tracestep_attention_shape s = small_shape();
  s.*member = value;
  return checked(s);
}

int status_with(float tracestep_attention_shape::*member, float value) {
  tracestep_attention_shape s = small_shape();
  s.*member = value;
  return checked(s);
}

TEST(AttentionChecksTest, SizesThatNoTensorHasAreRefused) {
  using Shape = tracestep_attention_shape;
  EXPECT_EQ(checked(small_shape()), TRACESTEP_SUCCESS);
  for (int32_t Shape::*size : {&Shape::batch, &Shape::heads, &Shape::queries, &Shape::keys}) {
    EXPECT_EQ(status_with(size, INT_MAX), TRACESTEP_BAD_SHAPE);
    EXPECT_EQ(status_with(size, -1), TRACESTEP_BAD_SHAPE);
    EXPECT_EQ(status_with(size, 0), TRACESTEP_SUCCESS);
    EXPECT_EQ(status_with(size, 1 << 20), TRACESTEP_SUCCESS);
  }
  Shape all = small_shape();
  all.batch = all.heads = 1 << 16;
  EXPECT_EQ(checked(all), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(status_with(&Shape::offset, INT_MIN), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(status_with(&Shape::offset, -(1 << 29)), TRACESTEP_SUCCESS);
}

TEST(AttentionChecksTest, TheBytesOfTheLargestShapesFit64Bits) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{1} << 20, kMostRows - 128}) {
    const std::int64_t heads = kMostRowsOfAllHeads / ((rows / 128 + 1) * 128);
    tracestep_attention_shape s = small_shape();
    s.heads = static_cast<int32_t>(heads);
    s.queries = s.keys = static_cast<int32_t>(rows);
    EXPECT_EQ(checked(s), TRACESTEP_SUCCESS) << rows;
    for (const bool is_float32 : {false, true}) {
      const AttentionExtent extent{heads, heads, rows, rows, 255, is_float32};
      for (const auto family : {AttentionFamily::kPortable, AttentionFamily::kHopper}) {
        const std::int64_t bytes = attention_workspace(extent, family, true).bytes;
        EXPECT_GT(bytes, heads * rows);
        EXPECT_LT(bytes, std::int64_t{1} << 52);
      }
    }
    s.heads += 1;
    EXPECT_EQ(checked(s), TRACESTEP_BAD_SHAPE) << rows;
  }
}

TEST(AttentionChecksTest, AFamilyThatThereIsNotIsRefused) {
  using Shape = tracestep_attention_shape;
  EXPECT_EQ(status_with(&Shape::family, 99), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(status_with(&Shape::family, -1), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(status_with(&Shape::family, TRACESTEP_FAMILY_HOPPER), TRACESTEP_SUCCESS);
}

TEST(AttentionChecksTest, AScaleOrACapThatIsNotFiniteIsRefused) {
  using Shape = tracestep_attention_shape;
  for (const float value : {INFINITY, NAN, -1.0F}) {
    EXPECT_EQ(status_with(&Shape::scale, value), TRACESTEP_BAD_SHAPE) << value;
    EXPECT_EQ(status_with(&Shape::cap, value), TRACESTEP_BAD_SHAPE) << value;
  }
  EXPECT_EQ(status_with(&Shape::scale, 0), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(status_with(&Shape::cap, 0), TRACESTEP_SUCCESS);
}

}  // namespace
}  // namespace tracestep::capi

// Checks arguments that the C interface refuses before anything is enqueued; needs no GPU. The
// kernels are compared with float64 by bench/peers/compare_attention.py and by the op matrix.
#include "capi/tracestep_attention.h"

#ifdef TRACESTEP_WITH_CUDA

#include <gtest/gtest.h>

#include <string>

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

TEST(TracestepAttentionTest, ABadShapeIsRefusedByItsKind) {
  tracestep_attention_shape wide = small_shape(), negative = small_shape(), dtype = small_shape();
  tracestep_attention_shape uneven = small_shape(), fewer = small_shape(), future = small_shape();
  future.window = 4;
  uneven.heads = 8;
  uneven.key_heads = 3;
  fewer.key_heads = -1;
  wide.width = 257;
  negative.keys = -1;
  dtype.dtype = 3;
  EXPECT_EQ(tracestep_attention_forward_workspace(&wide), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(tracestep_attention_backward_workspace(&negative), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(tracestep_attention_forward_workspace(&dtype), TRACESTEP_BAD_DTYPE);
  EXPECT_EQ(tracestep_attention_forward_workspace(&uneven), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(tracestep_attention_backward_workspace(&fewer), TRACESTEP_BAD_SHAPE);
  EXPECT_EQ(tracestep_attention_forward_workspace(&future), TRACESTEP_BAD_SHAPE);
}

TEST(TracestepAttentionTest, NothingGivenIsABadPointer) {
  EXPECT_EQ(tracestep_attention_forward(nullptr), TRACESTEP_BAD_POINTER);
  EXPECT_EQ(tracestep_attention_backward(nullptr), TRACESTEP_BAD_POINTER);
  EXPECT_EQ(tracestep_attention_backward_workspace(nullptr), TRACESTEP_BAD_POINTER);
}

TEST(TracestepAttentionTest, ACallWithoutTensorsIsRefusedWithOrWithoutADevice) {
  tracestep_attention_forward_call forward{};
  forward.shape = small_shape();
  EXPECT_EQ(tracestep_attention_forward(&forward), TRACESTEP_BAD_POINTER);
  tracestep_attention_backward_call backward{};
  backward.shape = small_shape();
  EXPECT_EQ(tracestep_attention_backward(&backward), TRACESTEP_BAD_POINTER);
}

TEST(TracestepAttentionTest, EveryStatusHasItsMessage) {
  for (int status = TRACESTEP_NO_DEVICE; status <= TRACESTEP_SUCCESS; ++status)
    EXPECT_FALSE(std::string(tracestep_attention_message(status)).empty());
}

}  // namespace

#endif  // TRACESTEP_WITH_CUDA

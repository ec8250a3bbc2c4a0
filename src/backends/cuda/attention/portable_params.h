// The arguments of the portable attention kernels.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda::portable {

// A tensor [batch, heads, rows, width] as the sum of one or two parts of 16-bit elements.
struct TileView {
  const void* data = nullptr;
  AttentionStrides strides;
  std::int64_t plane = 0;  // elements from part to part
  int rows = 0;
  bool is_aligned = true;  // every row starts at a multiple of 16 bytes
};

// Where results go, 16 bits or float32 an element.
struct ResultView {
  void* data = nullptr;
  AttentionStrides strides;
  bool is_float = false;
  bool is_aligned = true;  // rows start at multiples of 16 bytes
};

// The ranges of the four operands of one head of keys and of the heads of queries that share it, as
// bits of floats: the largest magnitude, and the largest sum of squares of a row.
enum Operand { kQ, kK, kV, kDO, kOperands };
struct HeadRange {
  std::uint32_t magnitude[kOperands];
  std::uint32_t squares[kOperands];
};

// A window that hides nothing; sums with it do not overflow.
inline constexpr int kNoWindow = 1 << 30;

struct ForwardParams {
  TileView q, k, v;
  ResultView o;
  float* lse = nullptr;
  const HeadRange* ranges = nullptr;  // of operands that were scaled; null: they were not
  int heads = 1, batch_heads = 1;     // of q
  int group = 1;                      // heads of q that share one of k and v
  int width = 0;
  float scale = 1.0F;
  bool causal = false;
  int offset = 0;  // causal: query i sees keys i + offset - window + 1 .. i + offset
  int window = kNoWindow;
  DocumentBounds documents = {};
  float cap = 0.0F;  // scores s become cap tanh(s / cap); 0: they stay
};

struct BackwardParams {
  TileView x, x_pair;   // resident: K and V, or Q and dO
  TileView y, y_pair;   // passing by: Q and dO, or K and V
  ResultView gradient;  // of x: dK or dQ
  ResultView value_gradient;
  // Statistics of every query, [batch_heads, query_pitch]: the log-sum-exp of the scores to base 2,
  // and rowsum(dO o O). Rows after the last: infinity and 0.
  const float* lse2 = nullptr;
  const float* delta = nullptr;
  const float* exponent = nullptr;  // |row of dO| < 2^this, where operands were scaled
  // Factors on the probabilities of each query that make them sum up to 1, where operands are in
  // two parts: written by the kernel for dQ, read by that for dK and dV. The log-sum-exp as a
  // float32 cannot say it: at scores of 10^4 its last bit is 10^-3.
  float* correction = nullptr;
  const HeadRange* ranges = nullptr;  // null: operands were not scaled
  int query_pitch = 0;
  int heads = 1, batch_heads = 1;  // of x
  int group = 1;                   // heads of queries that share one of keys
  int width = 0;
  float scale = 1.0F;
  bool causal = false;
  int offset = 0;  // causal: query i sees keys i + offset - window + 1 .. i + offset
  int window = kNoWindow;
  DocumentBounds documents = {};
  float cap = 0.0F;  // scores s become cap tanh(s / cap); 0: they stay
};

}  // namespace tracestep::cuda::portable

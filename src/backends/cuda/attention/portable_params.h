// The arguments of the portable attention kernels.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda::portable {

// A tensor [batch, heads, rows, width] as the sum of one or two parts of 16-bit elements.
struct TileView {
  const void* data = nullptr;
  AttentionStrides strides;
  std::int64_t plane = 0;  // The distance between parts in elements.
  int rows = 0;
  bool is_aligned = true;  // True: every row starts at a multiple of 16 bytes.
};

// Where results are written, with 16-bit or float32 elements.
struct ResultView {
  void* data = nullptr;
  AttentionStrides strides;
  bool is_float = false;
  bool is_aligned = true;  // True: rows start at multiples of 16 bytes.
};

// The operands; and their ranges for one head of keys with the heads of queries that share it, as
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
  // The ranges of scaled operands; nullptr: operands were not scaled.
  const HeadRange* ranges = nullptr;
  int heads = 1, batch_heads = 1;  // The heads of q.
  int group = 1;                   // How many heads of q share a head of k and v.
  int width = 0;
  float scale = 1.0F;
  bool causal = false;
  int offset = 0;  // With a causal mask, query i sees keys i + offset - window + 1 .. i + offset.
  int window = kNoWindow;
  DocumentBounds documents = {};
  float cap = 0.0F;  // The cap: scores s become cap tanh(s / cap); 0: none.
};

struct BackwardParams {
  TileView x, x_pair;   // The operands that a block keeps: K and V, or Q and dO.
  TileView y, y_pair;   // The operands that it walks over: Q and dO, or K and V.
  ResultView gradient;  // The gradient of x: dK or dQ.
  ResultView value_gradient;
  // Statistics of every query, [batch_heads, query_pitch]: the log-sum-exp of the scores to base 2,
  // and rowsum(dO o O). Rows after the last: infinity and 0.
  const float* lse2 = nullptr;
  const float* delta = nullptr;
  // The power of two above each row of dO: |row of dO| < 2^exponent; only for scaled operands.
  const float* exponent = nullptr;
  // For operands in two parts: the factor on each query's probabilities that makes them sum to 1,
  // which the kernel for dQ writes and the one for dK and dV reads. A float32 log-sum-exp is not
  // exact enough for it: at scores of 10^4 its last bit is 10^-3.
  float* correction = nullptr;
  const HeadRange* ranges = nullptr;  // nullptr: operands were not scaled.
  int query_pitch = 0;
  int heads = 1, batch_heads = 1;  // The heads of x.
  int group = 1;                   // How many heads of queries share a head of keys.
  int width = 0;
  float scale = 1.0F;
  bool causal = false;
  int offset = 0;  // With a causal mask, query i sees keys i + offset - window + 1 .. i + offset.
  int window = kNoWindow;
  DocumentBounds documents = {};
  float cap = 0.0F;  // The cap: scores s become cap tanh(s / cap); 0: none.
};

}  // namespace tracestep::cuda::portable

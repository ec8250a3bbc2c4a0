// Op functions: how programs are written. Each adds one node (or a few) to the builder of its
// operands. Shapes, dtypes, gradients, costs and sources are in the op's record and in
// docs/ops.md. Binary functions broadcast by the usual right-aligned rule, as explicit views.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace tracestep::ops {

// Registers every op of this folder; calling it again does nothing.
void register_all();

// Returns a tensor of this type that is filled with `value`.
Val fill(Builder& b, double value, Type type, Here here = Here::current());
// Counts 0, 1, 2, … along `axis`.
Val iota(Builder& b, Type type, int axis, Here here = Here::current());
struct RopeTable {
  Val cos, sin;  // [T, D/2]
};
// The angles of rotation: pair j of `width`/2 turns by theta^(-2j/width) a position, scaled as the
// attributes of the op rope_table say.
struct RopeFrequencies {
  double theta = 10000.0;
  std::string scaling = "none";  // "none", "linear", "llama3", "yarn", "longrope"
  double factor = 1.0, low = 1.0, high = 4.0;
  std::int64_t original = 8192;
  double magnitude = 1.0;
  std::vector<double> factors = {};  // longrope: of each pair
};
RopeTable rope_table(Builder& b, std::int64_t length, std::int64_t width,
                     const RopeFrequencies& frequencies, DType dtype = DType::kF32,
                     Here here = Here::current());

// Compute each element: `unary` and `binary` by the op of this name, the others by their own op.
Val unary(std::string_view op, Val x, Here here = Here::current());
Val binary(std::string_view op, Val a, Val b, Here here = Here::current());
Val add(Val a, Val b, Here here = Here::current());
Val sub(Val a, Val b, Here here = Here::current());
Val mul(Val a, Val b, Here here = Here::current());
Val div(Val a, Val b, Here here = Here::current());
Val affine(Val x, double scale, double shift = 0.0, Here here = Here::current());
Val select(Val condition, Val if_true, Val if_false, Here here = Here::current());
Val cast(Val x, DType dtype, Here here = Here::current());
Val silu(Val x, Here here = Here::current());
Val swiglu(Val gate, Val up, Here here = Here::current());

// Return views of x: its elements in another shape, and with its axes in another order.
Val reshape(Val x, Shape shape, Here here = Here::current());
Val permute(Val x, Dims axes, Here here = Here::current());
// Takes the elements start <= i < stop along `axis`.
Val slice(Val x, int axis, std::int64_t start, std::int64_t stop, Here here = Here::current());
Val broadcast_to(Val x, Shape shape, Here here = Here::current());
// Returns x itself, through which no gradient flows back.
Val stop_gradient(Val x, Here here = Here::current());

// Return copies: of the tensors joined along `axis`, and of x in row-major order.
Val concat(std::vector<Val> xs, int axis, Here here = Here::current());
Val copy(Val x, Here here = Here::current());
// Returns `base` with `piece` written at `position` (a rank-0 i64) along `axis`.
Val write_slice(Val base, Val piece, Val position, int axis, Here here = Here::current());

// Return the sum and the largest of the elements along `axes`, kept with size 1 if `keepdims`.
Val sum(Val x, Dims axes, bool keepdims = false, Here here = Here::current());
Val max(Val x, Dims axes, bool keepdims = false, Here here = Here::current());
// Sums `x` down to `shape`, the inverse of broadcast_to.
Val sum_to(Val x, const Shape& shape, Here here = Here::current());

// Which operands of a matrix product are read with their last two axes swapped.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
Val matmul(Val a, Val b, MatmulOptions options = {}, Here here = Here::current());
// Returns a · b + bias, rounded once, for matrices a and b; bias: [columns of the result].
Val matmul_bias(Val a, Val b, Val bias, MatmulOptions options = {}, Here here = Here::current());
// Multiplies x [..., in] by weight [out, in] and adds `bias` [out], if it is given: [..., out].
Val linear(Val x, Val weight, Val bias = {}, Here here = Here::current());
Val gather(Val table, Val indices, Here here = Here::current());
Val take_along(Val x, Val indices, Here here = Here::current());

// The factor on x in softmax(), and whether rows see only columns up to their own.
struct SoftmaxOptions {
  double scale = 1.0;
  bool causal = false;
};
// Returns softmax of rows. Causal: row i sees columns <= i + `position` (i64 []; else cols - rows).
Val softmax(Val x, SoftmaxOptions options = {}, Val position = {}, Here here = Here::current());
// Returns [rows, cols], true where row i sees column j: j <= i + (cols - rows), or i + position.
Val causal_mask(Builder& b, std::int64_t rows, std::int64_t cols, Val position = {});
// Returns [rows, cols], true for j > i + (cols - rows) - window, or j > i + position - window.
Val window_mask(Builder& b, std::int64_t rows, std::int64_t cols, std::int64_t window,
                Val position = {});
Val log_sum_exp(Val x, Here here = Here::current());
Val rms_norm(Val x, Val weight, double eps = 1e-5, Here here = Here::current());
// Normalises rows of x by mean and variance; result · weight + bias. `bias` is optional.
Val layer_norm(Val x, Val weight, Val bias = {}, double eps = 1e-5, Here here = Here::current());
Val rope(Val x, RopeTable table, bool inverse = false, Here here = Here::current());
struct AttentionOptions {
  bool causal = true;
  double scale = 0.0;       // 0: 1/sqrt(D)
  double cap = 0.0;         // 0: none
  std::int64_t window = 0;  // 0: none
};
Val attention(Val q, Val k, Val v, AttentionOptions options = {}, Val position = {},
              Here here = Here::current());
// The bounds of the document at each position, both i64 [B,T] (op flash_attention): in causal
// attention a query sees no key before the `starts` of its position.
struct DocumentBounds {
  Val starts, ends;
};
Val attention_of_documents(Val q, Val k, Val v, const DocumentBounds& documents,
                           AttentionOptions options = {}, Here here = Here::current());
// The results of attention of n new tokens over caches of keys and values: y [B,n,H,D], and the
// caches [B,H/group,T,D] with k and v from `position` on. q is [B,H,n,D], k and v [B,H/group,n,D];
// a `table` rotates q and k (without cosines, neither is rotated).
struct CachedAttention {
  Val y, k_cache, v_cache;
};
struct KeyValueCache {
  Val k, v, position;
};
CachedAttention attention_with_cache(Val q, Val k, Val v, const KeyValueCache& cache,
                                     const RopeTable& table, AttentionOptions options = {},
                                     Here here = Here::current());
// Returns the mean over rows of -log softmax(logits)[target]: logits [N,V], targets i64 [N] → [].
// With `count`, the sum over rows whose target is not -100, over count.
Val cross_entropy(Val logits, Val targets, Val count = {}, Here here = Here::current());
Val global_norm(std::vector<Val> xs, Here here = Here::current());

}  // namespace tracestep::ops

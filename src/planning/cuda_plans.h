// How the CUDA kernels divide their work, as pure functions of shapes. The kernels follow these
// plans, and workspace is predicted from them. No plan depends on the GPU model.
#pragma once

#include <cstdint>

#include "ops/attention_sizes.h"

namespace tracestep {

// Workspace of every matrix product: the size that cuBLASLt recommends for Hopper.
inline constexpr std::int64_t kCudaGemmWorkspaceBytes = std::int64_t{32} << 20;

// A product y[m,n] = a · b of 16-bit operands; transposed: stored as [k,m], or as [n,k].
struct ProductSizes {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool a_transposed = false, b_transposed = false;
  std::int64_t element_bytes = 2, y_bytes = 2;  // of an element of a and b; of y
};

// For rows whose length is no multiple of 8 the library has only kernels of a third of the usual
// rate: where that pays, operands and result lie in the workspace with longer rows, filled with
// zeros. Offsets in bytes, behind the library's own workspace.
struct PaddedProductPlan {
  static constexpr std::int64_t kMultiple = 8;

  bool pays = false;
  std::int64_t m = 0, n = 0, k = 0;  // rounded up where they are the length of a row
  // 0: there is no room, since the matrix has these sizes and stays where it is.
  std::int64_t a = 0, b = 0, y = 0;
  std::int64_t workspace_bytes = kCudaGemmWorkspaceBytes;
};
PaddedProductPlan plan_padded_product(const ProductSizes& sizes);

// Products with SwiGLU, or its gradients, as their epilogue (backends/cuda/gated/): gates and what
// they gate, [rows, 2 columns], from [rows, width] or with the gradient of that.
struct GatedProductSizes {
  std::int64_t rows = 0, width = 0, columns = 0;
};
// True if the kernels take the sizes: they compute whole tiles only.
bool takes_gated_product(const GatedProductSizes& sizes);
// True if these kernels are faster than the library's product and a kernel behind it, as measured
// over a grid of sizes (bench/results/cuda-h200.md, "SwiGLU at the end of products").
bool gated_product_pays(const GatedProductSizes& sizes);

// scatter_add: members (rows of x) sorted by the row they are added to. Members are offsets in the
// workspace, in bytes.
struct ScatterPlan {
  // Rows with more members than this are summed by whole blocks.
  static constexpr std::int64_t kFewMembers = 16;

  std::int64_t bounds = 0;     // [rows] begin and end among the sorted members, 32 bits each
  std::int64_t members[2]{};   // [count] row and position, 32 bits each; sorted back and forth
  std::int64_t long_rows = 0;  // how many rows have more than a few members, then which
  std::int64_t workspace_bytes = 0;
};
ScatterPlan plan_scatter(std::int64_t rows, std::int64_t count);

// sum, max: parts into which the reduced elements of each result are cut, so that few results of
// many elements keep the whole GPU busy; each part leaves a float per result in the workspace.
struct ReductionPlan {
  std::int64_t row_parts = 1;     // when the elements of a result are adjacent in memory
  std::int64_t column_parts = 1;  // when neighbouring results are adjacent
  std::int64_t workspace_bytes = 0;
};
ReductionPlan plan_reduction(std::int64_t results, std::int64_t reduced);

// global_norm: elements of an operand that leave one float in the workspace.
inline constexpr std::int64_t kCudaNormPart = 32768;
std::int64_t cuda_norm_parts(std::int64_t count);

// quantize: parts of so many elements, each of which leaves its largest magnitude in the workspace.
std::int64_t quantize_parts(std::int64_t count);
// quantize_delayed: tiles of so many rows and columns, each of which leaves it there; one of
// nothing.
inline constexpr int kQuantizeTile = 128;
std::int64_t quantize_tiles(std::int64_t rows, std::int64_t columns);

// rms_norm_grad, layer_norm_grad: rows whose weight gradients one block sums; it leaves a float per
// column, and of layer_norm_grad one more for the bias.
struct NormGradPlan {
  static constexpr std::int64_t kMostRows = 64;  // of a part; more would make its sums long

  std::int64_t rows_per_part = 1, parts = 0;
  std::int64_t workspace_bytes = 0;
};
NormGradPlan plan_norm_grad(std::int64_t rows, std::int64_t width);

// An operand [batch, rows, K] of a float32 product by parts (backends/cuda/split/): two float16
// parts of each element, and a scale for each block of K in a row. Offsets in bytes.
struct SplitPartsPlan {
  static constexpr std::int64_t kBlock = 64;  // of K

  std::int64_t rows = 0;
  std::int64_t padded_k = 0;    // whole blocks
  std::int64_t scale_rows = 0;  // whole 16 bytes
  std::int64_t parts = 0;       // [batch][2][rows][padded_k] float16
  std::int64_t scales = 0;      // [batch][padded_k / kBlock][scale_rows] float32
};

// How the results [batch, m, n] of a product by parts are divided among blocks.
struct SplitTilesPlan {
  static constexpr std::int64_t kRows = 128;

  std::int64_t columns = 128;  // of a tile: 96, 128 or 160
  std::int64_t shares = 1;     // of K, summed by different blocks
  std::int64_t sums = 0;       // [batch][shares][m][n] float32, of several shares
};

// y = a · b.
struct SplitProductPlan {
  SplitPartsPlan a, b;
  SplitTilesPlan tiles;
  std::int64_t workspace_bytes = 0;
};
SplitProductPlan plan_split_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                    std::int64_t batch);

// linear_grad: dx = g · w and dw = g' · x, with g [rows, n], w [n, k], x [rows, k].
struct SplitLinearGradPlan {
  SplitPartsPlan g_along, g_down, w, x;
  SplitTilesPlan dx, dw;
  std::int64_t workspace_bytes = 0;
};
SplitLinearGradPlan plan_split_linear_grad(std::int64_t rows, std::int64_t n, std::int64_t k);

// cached_attention: the keys of a cache are divided among blocks, so that few heads keep the GPU
// busy. Each part leaves, for each query, its unscaled sum, its largest score and its sum of
// weights, as floats in the workspace; a single part leaves nothing. The parts that a single token
// sees of a short cache are so few that one cluster of blocks holds them, where there are clusters.
struct CachedAttentionPlan {
  static constexpr std::int64_t kWarps = 8;  // of a block
  static constexpr std::int64_t kMostOfCluster = 8;
  static constexpr std::int64_t kPartKeys = 512, kTokenPartKeys = 64;

  std::int64_t rows = 1;        // queries of a block, all with the same keys: 1, 4 or 8
  std::int64_t row_blocks = 1;  // of one head of keys
  std::int64_t parts = 1, part_keys = 0;
  std::int64_t workspace_bytes = 0;
};
CachedAttentionPlan plan_cached_attention(const AttentionSizes& sizes);

// flash_attention and its gradient: enough for either family of kernels (Hopper, portable).
std::int64_t cuda_attention_forward_bytes(const AttentionSizes& sizes);
std::int64_t cuda_attention_backward_bytes(const AttentionSizes& sizes);

}  // namespace tracestep

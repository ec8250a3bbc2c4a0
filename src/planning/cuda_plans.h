// How the CUDA kernels divide their work, as pure functions of shapes. The kernels follow these
// plans, and workspace is predicted from them. No plan depends on the GPU model.
#pragma once

#include <cstdint>

#include "ops/attention_sizes.h"

namespace tracestep {

// The workspace of every matrix product, which is the size that cuBLASLt recommends for Hopper.
inline constexpr std::int64_t kCudaGemmWorkspaceBytes = std::int64_t{32} << 20;

// The sizes of a product y[m,n] = a · b of 16-bit operands. A transposed operand is stored as
// [k,m], or as [n,k].
struct ProductSizes {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool a_transposed = false, b_transposed = false;
  std::int64_t element_bytes = 2, y_bytes = 2;  // The bytes of an element of a and b, and of y.
};

// The plan of a product whose rows are no multiple of 8 elements, for which the library has kernels
// at a third of the usual speed only. If it pays, operands and result are copied into the workspace
// with longer rows, filled with zeros. Offsets are in bytes, after the library's own workspace.
struct PaddedProductPlan {
  static constexpr std::int64_t kMultiple = 8;

  bool pays = false;
  std::int64_t m = 0, n = 0, k = 0;  // The sizes, rounded up where they are the length of a row.
  // Offsets of the copies; 0: there is none, because the matrix has these sizes already and stays
  // in place.
  std::int64_t a = 0, b = 0, y = 0;
  std::int64_t workspace_bytes = kCudaGemmWorkspaceBytes;
};
PaddedProductPlan plan_padded_product(const ProductSizes& sizes);

// The sizes of products whose epilogue is SwiGLU or its gradients (backends/cuda/gated/): gates and
// gated values side by side, [rows, 2 columns], computed from [rows, width], or their gradients.
struct GatedProductSizes {
  std::int64_t rows = 0, width = 0, columns = 0;
};
// True if the kernels can compute these sizes, which must be whole tiles.
bool takes_gated_product(const GatedProductSizes& sizes);
// True if these kernels are faster than the library's product and a kernel after it, as measured
// over a grid of sizes (bench/results/cuda-h200.md, "SwiGLU at the end of products").
bool gated_product_pays(const GatedProductSizes& sizes);

// The workspace of scatter_add, with its members (the rows of x) sorted by the row to which they
// are added. Offsets are in bytes.
struct ScatterPlan {
  // Rows with more members than this are summed by a whole block each.
  static constexpr std::int64_t kFewMembers = 16;

  // [rows]: where the members of each row begin and end in sorted order, 32 bits each.
  std::int64_t bounds = 0;
  // [count]: row and position of each member, 32 bits each; sorting moves them between the two.
  std::int64_t members[2]{};
  std::int64_t long_rows = 0;  // The number of rows with many members, then these rows.
  std::int64_t workspace_bytes = 0;
};
ScatterPlan plan_scatter(std::int64_t rows, std::int64_t count);

// How sum and max divide the reduced elements of each result into parts, so that few results of
// many elements keep the whole GPU busy. Each part leaves a float for each result in the
// workspace.
struct ReductionPlan {
  std::int64_t row_parts = 1;     // The parts if the elements of a result are adjacent in memory.
  std::int64_t column_parts = 1;  // The parts if neighbouring results are adjacent.
  std::int64_t workspace_bytes = 0;
};
ReductionPlan plan_reduction(std::int64_t results, std::int64_t reduced);

// How many elements of an operand global_norm sums into one float of the workspace.
inline constexpr std::int64_t kCudaNormPart = 32768;
std::int64_t cuda_norm_parts(std::int64_t count);

// Returns the number of parts into which quantize divides `count` elements, each of which leaves
// its largest magnitude in the workspace.
std::int64_t quantize_parts(std::int64_t count);
// The rows and columns of a tile in quantize_delayed, which leaves its largest magnitude in the
// workspace; an empty tensor has one tile.
inline constexpr int kQuantizeTile = 128;
std::int64_t quantize_tiles(std::int64_t rows, std::int64_t columns);

// How rms_norm_grad and layer_norm_grad divide rows: a block sums the weight gradients of a
// part, and leaves a float for each column, and for layer_norm_grad another one for the bias.
struct NormGradPlan {
  // The most rows of a part; with more, its sums would take long.
  static constexpr std::int64_t kMostRows = 64;

  std::int64_t rows_per_part = 1, parts = 0;
  std::int64_t workspace_bytes = 0;
};
NormGradPlan plan_norm_grad(std::int64_t rows, std::int64_t width);

// The workspace of an operand [batch, rows, K] of a float32 product by parts
// (backends/cuda/split/): two float16 parts of each element, and a scale for each block of K in a
// row. Offsets are in bytes.
struct SplitPartsPlan {
  static constexpr std::int64_t kBlock = 64;  // The elements along K that share a scale.

  std::int64_t rows = 0;
  std::int64_t padded_k = 0;    // whole blocks
  std::int64_t scale_rows = 0;  // The number of rows, rounded up to whole 16 bytes of scales.
  std::int64_t parts = 0;       // [batch][2][rows][padded_k] float16
  std::int64_t scales = 0;      // [batch][padded_k / kBlock][scale_rows] float32
};

// How the results [batch, m, n] of a product by parts are divided among thread blocks.
struct SplitTilesPlan {
  static constexpr std::int64_t kRows = 128;

  std::int64_t columns = 128;  // The columns of a tile: 96, 128 or 160.
  std::int64_t shares = 1;     // The number of parts of K, which different blocks sum.
  // [batch][shares][m][n] float32: the sums of the parts, if there are several.
  std::int64_t sums = 0;
};

// The workspace of a float32 product y = a · b by parts.
struct SplitProductPlan {
  SplitPartsPlan a, b;
  SplitTilesPlan tiles;
  std::int64_t workspace_bytes = 0;
};
SplitProductPlan plan_split_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                    std::int64_t batch);

// The workspace of linear_grad by parts: dx = g · w and dw = gᵀ · x, with g [rows, n], w [n, k]
// and x [rows, k].
struct SplitLinearGradPlan {
  SplitPartsPlan g_along, g_down, w, x;
  SplitTilesPlan dx, dw;
  std::int64_t workspace_bytes = 0;
};
SplitLinearGradPlan plan_split_linear_grad(std::int64_t rows, std::int64_t n, std::int64_t k);

// How cached_attention divides the keys of a cache among blocks, so that few heads keep the GPU
// busy. Each part leaves for each query its unscaled sum, its largest score and its sum of
// weights, as floats in the workspace; a single part leaves nothing. For a single token and a
// short cache, all parts fit into one cluster of blocks, on GPUs that have clusters.
struct CachedAttentionPlan {
  static constexpr std::int64_t kWarps = 8;  // The warps of a thread block.
  static constexpr std::int64_t kMostOfCluster = 8;
  static constexpr std::int64_t kPartKeys = 512, kTokenPartKeys = 64;

  std::int64_t rows = 1;        // The queries of a block, which share the same keys: 1, 4 or 8.
  std::int64_t row_blocks = 1;  // The number of blocks for the queries of one head of keys.
  std::int64_t parts = 1, part_keys = 0;
  std::int64_t workspace_bytes = 0;
};
CachedAttentionPlan plan_cached_attention(const AttentionSizes& sizes);

// Return the bytes of workspace of flash_attention and its gradient, which are enough for either
// family of kernels (Hopper, portable).
std::int64_t cuda_attention_forward_bytes(const AttentionSizes& sizes);
std::int64_t cuda_attention_backward_bytes(const AttentionSizes& sizes);

}  // namespace tracestep

#include "planning/cuda_plans.h"

#include "base/integers.h"
#include "planning/cuda_attention.h"

#include <algorithm>
#include <limits>

namespace tracestep {
namespace {

// The number of blocks that keep the largest GPUs busy, and the least elements worth a block.
constexpr std::int64_t kBlocks = 1024;
constexpr std::int64_t kElementsPerBlock = 16384;

constexpr std::int64_t kFloat = 4;

}  // namespace

bool takes_gated_product(const GatedProductSizes& sizes) {
  constexpr std::int64_t kRows = 256, kWidth = 64, kColumns = 128, kMost = 1 << 24;
  const auto& [rows, width, columns] = sizes;
  const auto fits = [](std::int64_t size, std::int64_t tile) {
    return size > 0 && size <= kMost && size % tile == 0;
  };
  return fits(rows, kRows) && fits(width, kWidth) && fits(columns, kColumns) &&
         rows / kRows * (columns / kColumns) <= kMost;
}

// True if the fused kernel pays: smaller products are faster with the library's finer tiles.
bool gated_product_pays(const GatedProductSizes& sizes) {
  constexpr std::int64_t kRows = 1 << 10, kOperand = 1 << 20, kResult = 1 << 22;
  return takes_gated_product(sizes) && sizes.rows >= kRows &&
         sizes.rows * sizes.width >= kOperand && sizes.rows * sizes.columns >= kResult;
}

ScatterPlan plan_scatter(std::int64_t rows, std::int64_t count) {
  constexpr std::int64_t kPair = 8, kWord = 4;
  ScatterPlan plan;
  plan.bounds = 0;
  plan.members[0] = plan.bounds + rows * kPair;
  plan.members[1] = plan.members[0] + count * kPair;
  plan.long_rows = plan.members[1] + count * kPair;
  const std::int64_t most_long_rows = count / (ScatterPlan::kFewMembers + 1);
  plan.workspace_bytes = plan.long_rows + (1 + most_long_rows) * kWord;
  return plan;
}

PaddedProductPlan plan_padded_product(const ProductSizes& sizes) {
  // Measured on an H100: 190 TFLOP/s as they are and 550 padded, a copy at 1.1 TB/s each way. Other
  // GPUs have about the same ratios.
  constexpr double kSavedPerTerm = 2 / 190e12 - 2 / 550e12, kSecondsPerByte = 2 / 2.2e12,
                   kSecondsPerCopy = 2.5e-6, kMargin = 1.2;
  constexpr std::int64_t kHalf = 2;
  const auto& [m, n, k, batch, a_transposed, b_transposed, element_bytes, y_bytes] = sizes;
  const auto whole = [](std::int64_t size) { return round_up(size, PaddedProductPlan::kMultiple); };
  PaddedProductPlan plan;
  plan.m = a_transposed ? whole(m) : m;
  plan.n = whole(n);
  plan.k = a_transposed && !b_transposed ? k : whole(k);
  if (element_bytes != kHalf || batch != 1) return plan;
  double cost = 0;
  std::int64_t bytes = kCudaGemmWorkspaceBytes;
  const auto room = [&](bool is_whole, std::int64_t elements, std::int64_t bytes_each) {
    if (is_whole) return std::int64_t{0};
    const std::int64_t begin = bytes;
    bytes += round_up(elements * bytes_each, 256);
    cost += kSecondsPerCopy + kSecondsPerByte * static_cast<double>(elements * bytes_each);
    return begin;
  };
  plan.a = room(plan.m == m && plan.k == k, plan.m * plan.k, kHalf);
  plan.b = room(plan.k == k && plan.n == n, plan.k * plan.n, kHalf);
  plan.y = room(plan.m == m && plan.n == n, plan.m * plan.n, y_bytes);
  const double terms = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  plan.pays = cost > 0 && kSavedPerTerm * terms > kMargin * cost;
  if (plan.pays) plan.workspace_bytes = bytes;
  return plan;
}

ReductionPlan plan_reduction(std::int64_t results, std::int64_t reduced) {
  constexpr std::int64_t kColumnsPerBlock = 128, kLeastRows = 32;
  ReductionPlan plan;
  if (results == 0 || reduced == 0) return plan;
  const auto parts = [&](std::int64_t blocks, std::int64_t most) {
    return std::max<std::int64_t>(1, std::min(kBlocks / blocks, most));
  };
  plan.row_parts = parts(results, reduced / kElementsPerBlock);
  plan.column_parts = parts(ceil_div(results, kColumnsPerBlock),
                            std::min(reduced / kLeastRows, results * reduced / kElementsPerBlock));
  const std::int64_t most = std::max(plan.row_parts, plan.column_parts);
  if (most > 1) plan.workspace_bytes = most * results * kFloat;
  return plan;
}

std::int64_t cuda_norm_parts(std::int64_t count) {
  return ceil_div(count, kCudaNormPart);
}

NormGradPlan plan_norm_grad(std::int64_t rows, std::int64_t width) {
  // Two blocks for each multiprocessor of the largest GPUs; more when their sums would grow long.
  constexpr std::int64_t kParts = 256, kLeastRows = 4;
  NormGradPlan plan;
  plan.rows_per_part = std::clamp(ceil_div(rows, kParts), kLeastRows, plan.kMostRows);
  plan.parts = ceil_div(rows, plan.rows_per_part);
  plan.workspace_bytes = plan.parts * width * kFloat;
  return plan;
}

namespace {

// Returns workspace that is enough for either family of kernels: the alignment, which is no part
// of a shape, also decides which runs a call, and Hopper's workspace is the larger one.
std::int64_t attention_bytes(const AttentionSizes& a, bool is_backward) {
  const auto family =
      hopper_attention_width(a.width) > 0 ? AttentionFamily::kHopper : AttentionFamily::kPortable;
  return attention_workspace({.heads = a.heads,
                              .key_heads = a.key_heads,
                              .queries = a.queries,
                              .keys = a.keys,
                              .width = a.width,
                              .is_float32 = a.dtype == DType::kF32},
                             family, is_backward)
      .bytes;
}

}  // namespace

std::int64_t cuda_attention_forward_bytes(const AttentionSizes& a) {
  return a.heads * a.queries == 0 ? 0 : attention_bytes(a, false);
}

std::int64_t cuda_attention_backward_bytes(const AttentionSizes& a) {
  return a.is_empty() ? 0 : attention_bytes(a, true);
}

CachedAttentionPlan plan_cached_attention(const AttentionSizes& a) {
  constexpr std::int64_t kEnoughBlocks = 512;
  CachedAttentionPlan plan;
  if (a.is_empty()) return plan;
  const std::int64_t rows = a.heads / a.key_heads * a.queries;  // of a head of keys
  plan.rows = rows == 1 ? 1 : rows <= 4 || a.width > 128 ? 4 : 8;
  plan.row_blocks = ceil_div(rows, plan.rows);
  const std::int64_t most = ceil_div(kEnoughBlocks, a.key_heads * plan.row_blocks);
  using Plan = CachedAttentionPlan;
  const bool is_short = a.queries == 1 && a.keys <= Plan::kMostOfCluster * Plan::kPartKeys;
  plan.parts = std::min(
      most, is_short ? std::min(ceil_div(a.keys, Plan::kTokenPartKeys), Plan::kMostOfCluster)
                     : ceil_div(a.keys, Plan::kPartKeys));
  plan.part_keys = ceil_div(a.keys, plan.parts);
  if (plan.parts > 1) {
    plan.workspace_bytes = a.heads * a.queries * plan.parts * (a.width + 2) * kFloat;
  }
  return plan;
}

std::int64_t quantize_parts(std::int64_t count) {
  constexpr std::int64_t kPart = 8192, kMost = 1024;
  return std::clamp<std::int64_t>(ceil_div(count, kPart), 1, kMost);
}

std::int64_t quantize_tiles(std::int64_t rows, std::int64_t columns) {
  return std::max<std::int64_t>(1,
                                ceil_div(rows, kQuantizeTile) * ceil_div(columns, kQuantizeTile));
}

namespace {

// Takes pieces of a workspace, one after the other.
class Pieces {
 public:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t begin = end_;
    end_ += round_up(bytes, kAlignment);
    return begin;
  }
  std::int64_t bytes() const { return end_; }

 private:
  static constexpr std::int64_t kAlignment = 256;
  std::int64_t end_ = 0;
};

SplitPartsPlan plan_parts(std::int64_t rows, std::int64_t k, std::int64_t batch, Pieces& pieces) {
  constexpr std::int64_t kHalf = 2, kParts = 2;
  SplitPartsPlan plan;
  plan.rows = rows;
  plan.padded_k = round_up(k, SplitPartsPlan::kBlock);
  plan.scale_rows = round_up(rows, 16 / kFloat);
  plan.parts = pieces.take(kHalf * kParts * batch * rows * plan.padded_k);
  plan.scales =
      pieces.take(kFloat * batch * plan.padded_k / SplitPartsPlan::kBlock * plan.scale_rows);
  return plan;
}

SplitTilesPlan plan_tiles(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                          Pieces& pieces) {
  constexpr std::int64_t kMultiprocessors = 132, kLeastBlocks = 4, kMostShares = 8;
  SplitTilesPlan plan;
  const auto tiles_of = [&](std::int64_t columns) {
    return ceil_div(m, SplitTilesPlan::kRows) * ceil_div(n, columns) * batch;
  };
  // Times in units of a column's: whole waves of tiles, each with some time of its own.
  constexpr std::int64_t kOwnColumns = 16;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t columns : {160, 128, 96}) {
    const std::int64_t time =
        ceil_div(tiles_of(columns), kMultiprocessors) * (columns + kOwnColumns);
    if (time >= least) continue;
    least = time;
    plan.columns = columns;
  }
  const std::int64_t tiles = tiles_of(plan.columns), blocks = ceil_div(k, SplitPartsPlan::kBlock);
  if (tiles > 0 && tiles * 2 <= kMultiprocessors) {
    plan.shares = std::clamp<std::int64_t>(
        std::min(kMultiprocessors / tiles, blocks / kLeastBlocks), 1, kMostShares);
  }
  plan.sums = pieces.take(plan.shares > 1 ? kFloat * plan.shares * batch * m * n : 0);
  return plan;
}

}  // namespace

SplitProductPlan plan_split_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                    std::int64_t batch) {
  Pieces pieces;
  SplitProductPlan plan;
  plan.a = plan_parts(m, k, batch, pieces);
  plan.b = plan_parts(n, k, batch, pieces);
  plan.tiles = plan_tiles(m, n, k, batch, pieces);
  plan.workspace_bytes = pieces.bytes();
  return plan;
}

SplitLinearGradPlan plan_split_linear_grad(std::int64_t rows, std::int64_t n, std::int64_t k) {
  Pieces pieces;
  SplitLinearGradPlan plan;
  plan.g_along = plan_parts(rows, n, 1, pieces);
  plan.g_down = plan_parts(n, rows, 1, pieces);
  plan.w = plan_parts(k, n, 1, pieces);
  plan.x = plan_parts(k, rows, 1, pieces);
  plan.dx = plan_tiles(rows, k, n, 1, pieces);
  plan.dw = plan_tiles(n, k, rows, 1, pieces);
  plan.workspace_bytes = pieces.bytes();
  return plan;
}

}  // namespace tracestep

#include "ops/cuda_plans.h"

#include <algorithm>

namespace tracestep {
namespace {

// Blocks that keep the largest cards busy, and elements that are worth one.
constexpr std::int64_t kBlocks = 1024;
constexpr std::int64_t kElementsPerBlock = 16384;

constexpr std::int64_t kFloat = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

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

RmsNormGradPlan plan_rms_norm_grad(std::int64_t rows, std::int64_t width) {
  // Two blocks for each multiprocessor of the largest cards; more where their sums grow long.
  constexpr std::int64_t kParts = 256, kLeastRows = 4, kMostRows = 64;
  RmsNormGradPlan plan;
  plan.rows_per_part = std::clamp(ceil_div(rows, kParts), kLeastRows, kMostRows);
  plan.parts = ceil_div(rows, plan.rows_per_part);
  plan.workspace_bytes = plan.parts * width * kFloat;
  return plan;
}

std::int64_t cuda_attention_forward_bytes(const AttentionSizes& sizes) {
  return 0 * sizes.heads;
}

std::int64_t cuda_attention_backward_bytes(const AttentionSizes& sizes) {
  if (sizes.is_empty()) return 0;
  // The inner products dy·y of all rows, and the gradient of q in float32.
  return sizes.heads * sizes.queries * (1 + sizes.width) * kFloat;
}

}  // namespace tracestep

// How the CUDA kernels divide their work, as pure functions of shapes. The kernels follow these
// plans, and workspace is predicted from them. No plan depends on the GPU model.
#pragma once

#include <cstdint>

#include "ops/attention_sizes.h"

namespace tracestep {

// Workspace of every matrix product: the size that cuBLASLt recommends for Hopper.
inline constexpr std::int64_t kCudaGemmWorkspaceBytes = std::int64_t{32} << 20;

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

// rms_norm_grad, layer_norm_grad: rows whose weight gradients one block sums; it leaves a float per
// column, and of layer_norm_grad one more for the bias.
struct NormGradPlan {
  static constexpr std::int64_t kMostRows = 64;  // of a part; more would make its sums long

  std::int64_t rows_per_part = 1, parts = 0;
  std::int64_t workspace_bytes = 0;
};
NormGradPlan plan_norm_grad(std::int64_t rows, std::int64_t width);

// flash_attention and its gradient: enough for either family of kernels (Hopper, portable).
std::int64_t cuda_attention_forward_bytes(const AttentionSizes& sizes);
std::int64_t cuda_attention_backward_bytes(const AttentionSizes& sizes);

}  // namespace tracestep

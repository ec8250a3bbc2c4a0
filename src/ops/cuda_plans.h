// How the CUDA kernels cut their work, as pure functions of shapes: the op records predict
// workspace from these plans, and the kernels obey them. No plan looks at the card, so that a
// prediction needs none.
#pragma once

#include <cstdint>

namespace tracestep {

// What every matrix product may use: the size that cuBLASLt's kernels for Hopper want.
inline constexpr std::int64_t kCudaGemmWorkspaceBytes = std::int64_t{32} << 20;

// scatter_add: members (rows of x) sorted by the row they are added to. Offsets in bytes.
struct ScatterPlan {
  // Rows with more members than this are summed by whole blocks.
  static constexpr std::int64_t kFewMembers = 16;

  std::int64_t bounds = 0;     // [rows] begin and end among the sorted members, 32 bits each
  std::int64_t members[2]{};   // [count] row and position, 32 bits each; sorted to and fro
  std::int64_t long_rows = 0;  // how many rows have more than a few members, then which
  std::int64_t workspace_bytes = 0;
};
ScatterPlan plan_scatter(std::int64_t rows, std::int64_t count);

}  // namespace tracestep

// How the CPU kernels cut their work, as pure functions of shape and thread count: the op records
// predict workspace from these plans, and the kernels obey them.
#pragma once

#include <cstdint>

#include "ir/op_def.h"

namespace tracestep {

// The packed matrix product. Bits depend on `block_k` and `splits` only, which do not look at the
// number of threads; the blocks of the result do, to give every thread the same share.
struct GemmPlan {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t block_m = 0, block_n = 0, block_k = 0;
  std::int64_t blocks_m = 0, blocks_n = 0, blocks_k = 0;
  std::int64_t splits = 1;  // parts of K, summed in order at the end
  bool is_vector = false;   // m or n is 1: no packing, each matrix element is used once

  std::int64_t jobs() const { return batch * blocks_m * blocks_n * splits; }
  // Floats of scratch that one thread needs: a packed block of a, a packed strip of b, and, for low
  // precision, a block of the result.
  std::int64_t packed_a() const;
  std::int64_t packed_b() const;
  std::int64_t result_block = 0;
  std::int64_t floats_per_thread() const { return packed_a() + packed_b() + result_block; }
  // Floats of partial results of all splits.
  std::int64_t partials() const { return splits > 1 ? splits * batch * m * n : 0; }
  std::int64_t workspace_bytes(int threads) const;
};
GemmPlan plan_gemm(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype,
                   int threads);

// Parts into which the reduced elements of each result are cut, so that few results of many
// elements keep all threads busy; each part leaves one double per result in the workspace.
std::int64_t reduction_parts(std::int64_t results, std::int64_t reduced);
std::int64_t reduction_workspace_bytes(std::int64_t results, std::int64_t reduced);

// Elements per partial sum of global_norm.
inline constexpr std::int64_t kNormChunk = 65536;

// Rows whose weight gradients rms_norm_grad sums in one go; every block of rows leaves one float
// per column.
std::int64_t rms_norm_rows_per_block(std::int64_t rows);

}  // namespace tracestep

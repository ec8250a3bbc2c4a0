// How the CPU kernels divide their work, as pure functions of shapes. The kernels follow these
// plans, and workspace is predicted from them and the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/op_def.h"
#include "ops/attention_sizes.h"

namespace tracestep {

// How the packed matrix product is divided into blocks, which threads take one after the other.
// Results depend bitwise on `block_k` and `splits`, which follow from the shape alone. From
// four threads on they share the smaller operand packed, part of K at a time where that is large;
// fewer threads pack for themselves, in blocks that keep all of them busy.
struct GemmPlan {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t block_m = 0, block_n = 0, block_k = 0;
  std::int64_t blocks_m = 0, blocks_n = 0, blocks_k = 0;
  // The depth of a packed strip: block_k, or half of it for bfloat16 operands.
  std::int64_t strip_k = 0;
  // The number of parts of K, whose results are summed in order at the end.
  std::int64_t splits = 1;
  // True: m or n is 1, so each matrix element is used once and nothing is packed.
  bool is_vector = false;
  // True: a is packed once for all blocks side by side, for a panel of several blocks of rows at a
  // time. False: each block packs its part of a itself, one chunk of K at a time.
  bool shares_a = false;
  std::int64_t panel_blocks = 0;
  // True: b is packed once for all blocks, and a is not. Where either is shared, all threads pack,
  // and multiply, one panel after the other: panel_blocks x panel_blocks_n blocks of the result,
  // over panel_blocks_k blocks of K.
  bool shares_b = false;
  std::int64_t panel_blocks_n = 0, panel_blocks_k = 0;
  // The parts, of rows or of columns, in which the last blocks of a panel are taken: cores are not
  // equally fast, and all wait for whoever has the last block.
  std::int64_t tail_parts_m = 1, tail_parts_n = 1;

  std::int64_t tail_parts() const { return tail_parts_m * tail_parts_n; }
  // Returns how many blocks of a panel of `blocks` are taken in parts: up to sixteen, but none of
  // the first sixteen, which begin at once on as many threads.
  std::int64_t tail_blocks(std::int64_t blocks) const {
    return tail_parts() == 1 ? 0 : std::clamp<std::int64_t>(blocks - 16, 0, 16);
  }

  std::int64_t jobs() const { return batch * blocks_m * blocks_n * splits; }
  // Return the floats of a packed block of `a`: for a strip's depth, and for a whole chunk of K.
  std::int64_t packed_a() const;
  std::int64_t packed_chunk() const;
  std::int64_t packed_b() const;
  std::int64_t result_block = 0;
  // Returns the floats of scratch that a thread needs: a packed block of `a` and a packed strip
  // of `b` unless these are shared, and, for low precision and for what is added to a tensor, a
  // block of the result, unless one panel of K after the other is added to it.
  std::int64_t floats_per_thread() const {
    const std::int64_t block = keeps_sums() ? 0 : result_block;
    return (shares_a ? 0 : packed_a()) + (shares_b ? 0 : packed_b()) + block;
  }
  // Return the floats of what is packed for all threads: of `a`, or of `b`, whose columns stand
  // side by side for each packed stretch of K; and of the sums that are kept between panels of K.
  std::int64_t shared_a_floats() const;
  std::int64_t shared_b_floats() const;
  bool keeps_sums() const { return result_block > 0 && panel_blocks_k < blocks_k; }
  std::int64_t kept_sums() const {
    return keeps_sums() ? panel_blocks * panel_blocks_n * result_block : 0;
  }
  std::int64_t shared_floats() const { return shared_a_floats() + shared_b_floats() + kept_sums(); }
  // Returns the floats of the partial results of all splits.
  std::int64_t partials() const { return splits > 1 ? splits * batch * m * n : 0; }
  std::int64_t workspace_bytes(int threads) const;
};
// Plans a product. `adds`: whether it is added to a tensor.
GemmPlan plan_gemm(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                   DType operands, DType result, int threads, bool adds = false);

// Returns the number of parts of the elements that make a result, such that few results of many
// elements keep all threads busy. Each part leaves a double for each result in the workspace.
std::int64_t reduction_parts(std::int64_t results, std::int64_t reduced);
std::int64_t reduction_workspace_bytes(std::int64_t results, std::int64_t reduced);

// The number of elements in a partial sum of global_norm.
inline constexpr std::int64_t kNormChunk = 65536;

// Returns how many rows rms_norm_grad and layer_norm_grad sum at a time for the weight's
// gradient; every such block of rows leaves a float for each column.
std::int64_t rms_norm_rows_per_block(std::int64_t rows);

// The division of work in flash_attention and its gradient. The workspace begins with what all
// threads share, then each thread has scratch for its own tiles. Sizes assume the widest strips of
// any SIMD target.
struct AttentionPlan {
  // The queries of a forward tile, and of a backward panel.
  static constexpr std::int64_t kQueries = 224;
  // The fewest queries of a panel on any SIMD target.
  static constexpr std::int64_t kLeastPanel = 48;
  static constexpr std::int64_t kKeys = 72;  // The keys of a forward tile, before rounding up.
  static constexpr std::int64_t kMostBackwardKeys = 192;
  static constexpr std::int64_t kWidestStrip = 32, kTallestStrip = 14;
  // Every tile begins at a multiple of this many floats.
  static constexpr std::int64_t kAligned = 16;

  AttentionSizes sizes;
  std::int64_t padded_width = 0;
  // The keys of a block in backward, before rounding up; a block is kept while all queries pass.
  std::int64_t backward_keys = 0;

  std::int64_t forward_floats_per_thread() const;
  std::int64_t forward_bytes(int threads) const;

  // Return the floats that all threads share: two for every row, the gradient of q in float32 if
  // its dtype is narrower, and for every panel of queries a 32-bit count of the key blocks that
  // were added to it.
  std::int64_t row_floats() const;
  std::int64_t dq_floats() const;
  std::int64_t turn_counters() const;
  std::int64_t backward_floats_per_thread() const;
  std::int64_t backward_bytes(int threads) const;
};
AttentionPlan plan_attention(const AttentionSizes& sizes);

}  // namespace tracestep

// The work of tiled attention on a CPU, counted in the register tiles that its kernels compute.
#pragma once

#include "ir/op_def.h"
#include "ops/attention_sizes.h"

namespace tracestep {

struct AttentionTiles {
  // The scores that are computed, over the scores of visible pairs; at least 1. On the diagonal
  // whole register tiles are computed, so it is the larger the fewer keys there are.
  double scores_per_pair = 1;
  double scores = 0;  // The computed scores of all heads; each of them takes an exponential.
  double packed = 0;  // The elements of all operands that are copied into the order of the tiles.
};

// Counts the tiles of flash_attention, or of its gradient, with these attributes of the op. The
// strips are the widest of any SIMD target; limits of packed documents are not seen.
AttentionTiles attention_tiles(const AttentionSizes& sizes, const Attrs& attrs, bool is_grad);

}  // namespace tracestep

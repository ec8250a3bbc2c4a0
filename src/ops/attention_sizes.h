// The sizes of a flash_attention call that its work plan and its workspace depend on.
#pragma once

#include <cstdint>

#include "ir/program.h"

namespace tracestep {

// The widest head that the tiles of every device can hold.
inline constexpr std::int64_t kMostFlashWidth = 256;

// The number of documents assumed in a row if it is not known: in measured steps, and for counting
// FLOPs.
inline constexpr std::int64_t kUsualDocuments = 16;

struct AttentionSizes {
  // The heads of q, and those of k and v, over all sequences.
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t queries = 0, keys = 0, width = 0;  // T_q, T_k, D
  DType dtype = DType::kF32;

  bool is_empty() const { return heads * queries == 0 || keys == 0; }
};

// Returns how many heads of q share one head of k; 1 without an axis of heads, or if it is empty.
inline std::int64_t attention_group(const Shape& q, const Shape& k) {
  return q.rank() < 3 || k.back(2) == 0 ? 1 : q.back(2) / k.back(2);
}

// Returns the sizes of a call with q: [..., H, T_q, D], k: [..., H/group, T_k, D].
inline AttentionSizes attention_sizes(const Type& q, const Type& k) {
  const Shape& s = q.shape;
  const std::int64_t rows = s.back(1) * s.back();
  const std::int64_t heads = rows == 0 ? 0 : s.product() / rows;
  return {.heads = heads,
          .key_heads = heads / attention_group(s, k.shape),
          .queries = s.back(1),
          .keys = k.shape.back(1),
          .width = s.back(),
          .dtype = q.dtype};
}

}  // namespace tracestep

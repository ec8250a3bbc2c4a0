// 16-bit tensors whose rows are no whole 16 bytes, copied to where they are: the copy engine, and
// so the Hopper kernels, cannot read them otherwise. Columns past a row's end become zeros, which
// change no product. docs/flash-attention.md says what this costs and what it gains.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// A tensor [batch, heads, rows, width] and a copy of it elsewhere; rows lie in the same order.
struct RowCopy {
  const void* source = nullptr;
  void* target = nullptr;
  AttentionStrides source_strides, target_strides;
  int heads = 0, rows = 0;
};

// At most five copies of `batch` entries in one launch: what one call reads, or writes.
struct RowCopies {
  static constexpr int kMost = 5;
  RowCopy copies[kMost];
  int count = 0, batch = 0;
  int source_width = 0, target_width = 0;  // columns; what the source does not have becomes 0
  void add(const RowCopy& copy) { copies[count++] = copy; }
};
cudaError_t copy_rows(const RowCopies& copies, const LaunchStream& stream);

}  // namespace tracestep::cuda

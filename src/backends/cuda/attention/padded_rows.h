// Copies 16-bit tensors whose rows are no multiple of 16 bytes to places where they are, because
// the copy engine, and so the Hopper kernels, cannot read them otherwise. Columns beyond a row's
// end become zeros, which change no product. docs/flash-attention.md has the cost and the gain.
#pragma once

#include "backends/cuda/attention/attention.h"

namespace tracestep::cuda {

// A tensor [batch, heads, rows, width] and where its copy goes, with rows in the same order.
struct RowCopy {
  const void* source = nullptr;
  void* target = nullptr;
  AttentionStrides source_strides, target_strides;
  int heads = 0, rows = 0;
};

// Up to five copies of `batch` entries, made in one launch: a call's operands, or its results.
struct RowCopies {
  static constexpr int kMost = 5;
  RowCopy copies[kMost];
  int count = 0, batch = 0;
  // The columns of source and target; columns that the source lacks become 0.
  int source_width = 0, target_width = 0;
  void add(const RowCopy& copy) { copies[count++] = copy; }
};
cudaError_t copy_rows(const RowCopies& copies, const LaunchStream& stream);

}  // namespace tracestep::cuda

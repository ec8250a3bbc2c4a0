// The compiled portable kernels, a function for each source file, and the kernels that prepare
// their operands.
#pragma once

#include "backends/cuda/attention/portable_params.h"

namespace tracestep::cuda::portable {

// The bytes of shared memory that a thread block may use on every GPU from 8.0 on (8.6 and 8.9 have
// the least; an A100 has 163 KiB, Hopper 227), and a function that returns the current device's.
inline constexpr int kLeastSharedMemory = 99 * 1024;
int shared_memory_limit();

// Launch the forward kernel. `width` must be a padded width. `split`: float16 in two parts, with
// results in float32.
cudaError_t forward_bf16(int width, const ForwardParams& params, cudaStream_t stream);
cudaError_t forward_f16(int width, const ForwardParams& params, cudaStream_t stream);
cudaError_t forward_split(int width, const ForwardParams& params, cudaStream_t stream);

// Launch both kernels of backward: the one with `keys` keeps K and V in shared memory, the one with
// `queries` keeps Q and dO.
cudaError_t backward_bf16(int width, const BackwardParams& keys, const BackwardParams& queries,
                          cudaStream_t stream);
cudaError_t backward_f16(int width, const BackwardParams& keys, const BackwardParams& queries,
                         cudaStream_t stream);
cudaError_t backward_split(int width, const BackwardParams& keys, const BackwardParams& queries,
                           cudaStream_t stream);

// The arguments of find_query_stats(): what it reads, and the statistics of every query that it
// writes for the backward kernels (BackwardParams). `exponent` may be nullptr.
struct QueryStats {
  const void *o = nullptr, *d_o = nullptr;
  AttentionStrides o_strides, do_strides;
  const float* lse = nullptr;
  float *lse2 = nullptr, *delta = nullptr, *exponent = nullptr;
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1, rows = 0, pitch = 0, width = 0;
  bool is_aligned = true;  // True: rows of o and dO start at multiples of 16 bytes.
};
cudaError_t find_query_stats(const QueryStats& stats, cudaStream_t stream);

// A float32 operand that is to be split into parts [batch · heads, parts, rows, padded width].
struct SplitOperand {
  const float* data = nullptr;
  AttentionStrides strides;
  void* parts = nullptr;
  int heads = 1, rows = 0;
};
struct SplitOperands {
  SplitOperand operand[kOperands];  // q, k, v and dO; operands without data are skipped.
  HeadRange* ranges = nullptr;      // [batch · key_heads]: the ranges, which the kernel writes.
  int batch = 1, key_heads = 1, width = 0, padded = 0, parts = 2;
};
cudaError_t split_operands(const SplitOperands& operands, cudaStream_t stream);

}  // namespace tracestep::cuda::portable

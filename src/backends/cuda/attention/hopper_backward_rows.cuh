// Prepares and finishes rows of queries around the backward kernel: delta = rowsum(O dO) and
// the log-sum-exp in log2, padded to whole blocks, and cleared sums before; dQ from its sums
// after.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/ptx.cuh"
#include "backends/cuda/predecessors.cuh"

namespace tracestep::cuda {

struct BackwardRows {
  const void *o, *d_o;
  void* dq;
  const float* lse;
  AttentionStrides o_strides, do_strides, dq_strides;
  float *lse2, *delta, *dq_sums;            // as in BackwardParameters; wide heads: no dq_sums
  int* turns;                               // or null
  int queries, heads, width, padded_width;  // dq_sums have padded_width columns
  int row_blocks;                           // blocks of 64 rows in a head
  float scale;
};

// Returns the offset in elements of row `row` of head `head_of_all`, counted over the whole batch.
__device__ __forceinline__ std::int64_t row_offset(const AttentionStrides& strides, int head_of_all,
                                                   int heads, int row) {
  return head_of_all / heads * strides.batch + head_of_all % heads * strides.head +
         row * strides.row;
}

template <class T>
__device__ __forceinline__ float product_sum(uint4 a, uint4 b) {
  const T *x = reinterpret_cast<const T*>(&a), *y = reinterpret_cast<const T*>(&b);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(static_cast<float>(x[i]), static_cast<float>(y[i]), sum);
  return sum;
}

// Writes delta and LSE of 64 rows per block, 16 lanes to a row; clears the rows' dQ sums and turn.
template <class T>
__global__ void __launch_bounds__(256)
    prepare_attention_backward_kernel(Predecessors before, const BackwardRows p) {
  before.wait();
  const int head = static_cast<int>(blockIdx.x) / p.row_blocks;
  const int first = static_cast<int>(blockIdx.x) % p.row_blocks * 64;
  const int thread = static_cast<int>(threadIdx.x);
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first + i * 16 + thread / 16;
    sums[i] = 0;
    if (row >= p.queries) continue;
    const T* o = static_cast<const T*>(p.o) + row_offset(p.o_strides, head, p.heads, row);
    const T* d_o = static_cast<const T*>(p.d_o) + row_offset(p.do_strides, head, p.heads, row);
    for (int column = thread % 16 * 8; column < p.width; column += 128)
      sums[i] += product_sum<T>(*reinterpret_cast<const uint4*>(o + column),
                                *reinterpret_cast<const uint4*>(d_o + column));
  }
  float4* clear =
      reinterpret_cast<float4*>(p.dq_sums + std::int64_t{blockIdx.x} * 64 * p.padded_width);
  for (int i = thread; p.dq_sums != nullptr && i < 16 * p.padded_width; i += 256)
    clear[i] = make_float4(0, 0, 0, 0);
  if (p.turns != nullptr && thread == 0) p.turns[blockIdx.x] = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sums[i] += __shfl_xor_sync(0xffffffffU, sums[i], step);
    const int row = first + i * 16 + thread / 16;
    if (thread % 16 != 0) continue;
    const std::int64_t padded = (std::int64_t{head} * p.row_blocks) * 64 + row;
    p.delta[padded] = sums[i];
    // Rows past the end have Q = dO = 0: any finite P does. A row that saw no key has P = 0.
    float lse = 0;
    if (row < p.queries) lse = p.lse[std::int64_t{head} * p.queries + row];
    p.lse2[padded] = lse == -INFINITY ? INFINITY : lse * 1.44269504F;
  }
}

// Writes dQ of 64 rows, scaled and rounded, from its sums, which lie as a warpgroup's fragments do.
template <class T, int kD>
__global__ void __launch_bounds__(128)
    finish_attention_backward_kernel(Predecessors before, const BackwardRows p) {
  before.wait();
  constexpr int kPitch = kD + 8;  // keeps rows out of each other's banks
  __shared__ alignas(16) T rows[64 * kPitch];
  const int head = static_cast<int>(blockIdx.x) / p.row_blocks;
  const int first = static_cast<int>(blockIdx.x) % p.row_blocks * 64;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  const float4* sums =
      reinterpret_cast<const float4*>(p.dq_sums) + std::int64_t{blockIdx.x} * 16 * kD;
#pragma unroll
  for (int j = 0; j < kD / 8; ++j) {
    const float4 x = sums[j * 128 + thread];
    const int column = j * 8 + lane % 4 * 2;
    *reinterpret_cast<std::uint32_t*>(rows + row * kPitch + column) =
        pack<T>(x.x * p.scale, x.y * p.scale);
    *reinterpret_cast<std::uint32_t*>(rows + (row + 8) * kPitch + column) =
        pack<T>(x.z * p.scale, x.w * p.scale);
  }
  __syncthreads();
  for (int i = thread; i < 64 * kD / 8; i += 128) {
    const int r = i / (kD / 8), column = i % (kD / 8) * 8;
    if (first + r >= p.queries) break;
    if (column >= p.width) continue;
    T* out = static_cast<T*>(p.dq) + row_offset(p.dq_strides, head, p.heads, first + r);
    *reinterpret_cast<uint4*>(out + column) =
        *reinterpret_cast<const uint4*>(rows + r * kPitch + column);
  }
}

}  // namespace tracestep::cuda

// Prepares the portable attention kernels: rowsum(dO o O) and the log-sum-exp of every query for
// the backward pass, and float32 operands turned into float16 parts.
#include <algorithm>

#include "backends/cuda/attention/portable_forward.cuh"
#include "backends/cuda/attention/portable_kernels.h"

namespace tracestep::cuda::portable {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // threads to a row
constexpr int kRowsPerBlock = kThreads / kLanes;

// Loads the eight elements of a row from `column` on into x; from column `width` on they are zeros.
template <class T>
__device__ __forceinline__ void load_eight(float (&x)[8], const T* row, int column, int width,
                                           bool is_aligned) {
  if (is_aligned && column + 8 <= width) {
    constexpr int kWords = 8 * sizeof(T) / 16;
    uint4 words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const uint4*>(row + column)[i];
    const T* elements = reinterpret_cast<const T*>(words);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = to_float(elements[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = column + i < width ? to_float(row[column + i]) : 0.0F;
  }
}

__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) x += __shfl_xor_sync(0xFFFFFFFF, x, step);
  return x;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_query_stats_kernel(const __grid_constant__ QueryStats p) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t index =
      blockIdx.x * std::int64_t{kRowsPerBlock} + static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t batch_head =
      index / p.pitch;  // the pitch is a multiple of the rows of a block
  const int row = static_cast<int>(index % p.pitch);
  const std::int64_t batch = batch_head / p.heads, head = batch_head % p.heads;
  float dot = 0, squares = 0;
  if (row < p.rows) {
    const T* o = static_cast<const T*>(p.o) + batch * p.o_strides.batch + head * p.o_strides.head +
                 row * p.o_strides.row;
    const T* d_o = static_cast<const T*>(p.d_o) + batch * p.do_strides.batch +
                   head * p.do_strides.head + row * p.do_strides.row;
    for (int column = lane * 8; column < p.width; column += kLanes * 8) {
      float a[8], b[8];
      load_eight(a, o, column, p.width, p.is_aligned);
      load_eight(b, d_o, column, p.width, p.is_aligned);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        dot = fmaf(a[i], b[i], dot);
        squares = fmaf(b[i], b[i], squares);
      }
    }
  }
  dot = sum_of_row(dot);
  squares = sum_of_row(squares);
  if (lane != 0) return;
  p.lse2[index] = row < p.rows ? p.lse[batch_head * p.rows + row] * kLog2E : INFINITY;
  p.delta[index] = dot;
  if (p.exponent != nullptr) {
    p.exponent[index] = static_cast<float>(root_exponent(__float_as_uint(squares)));
  }
}

__device__ __forceinline__ float finite_magnitude(float x) {
  const float magnitude = fabsf(x);
  return magnitude < INFINITY ? magnitude : 0;  // infinity and NaN give no scale
}

// Returns the range of a head of an operand, common to all heads that share one head of keys.
__device__ __forceinline__ HeadRange& range_of(const SplitOperands& p, const SplitOperand& x,
                                               int batch_head) {
  return p.ranges[batch_head / (x.heads / p.key_heads)];
}

// Raises the range of a head to the head's largest magnitude and the largest sum of squares of a
// row; maxima do not depend on the order.
__device__ __forceinline__ void measure_head(const SplitOperands& p, const SplitOperand& x,
                                             int batch_head) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int batch = batch_head / x.heads, head = batch_head % x.heads;
  const float* start = x.data + batch * x.strides.batch + head * x.strides.head;
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(start) % 16 == 0 && x.strides.row % 4 == 0;
  float magnitude = 0, largest = 0;
  const int rows_per_step = kRowsPerBlock * static_cast<int>(gridDim.x);
  for (int first = static_cast<int>(blockIdx.x) * kRowsPerBlock; first < x.rows;
       first += rows_per_step) {  // whole warps stay together
    const int row = first + static_cast<int>(threadIdx.x) / kLanes;
    float squares = 0;
    if (row < x.rows) {
      for (int column = lane * 8; column < p.width; column += kLanes * 8) {
        float a[8];
        load_eight(a, start + row * x.strides.row, column, p.width, is_aligned);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float m = finite_magnitude(a[i]);
          magnitude = fmaxf(magnitude, m);
          squares = fmaf(m, m, squares);
        }
      }
    }
    largest = fmaxf(largest, fminf(sum_of_row(squares), 3e38F));
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    magnitude = fmaxf(magnitude, __shfl_xor_sync(0xFFFFFFFF, magnitude, step));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, step));
  }
  if (threadIdx.x % 32 != 0) return;
  HeadRange& range = range_of(p, x, batch_head);
  atomicMax(&range.magnitude[blockIdx.z], __float_as_uint(magnitude));
  atomicMax(&range.squares[blockIdx.z], __float_as_uint(largest));
}

// Measures the ranges of heads. blockIdx.x, y and z number rows, heads and operands.
__global__ void __launch_bounds__(kThreads)
    attention_measure_operands_kernel(const __grid_constant__ SplitOperands p) {
  const SplitOperand& x = p.operand[blockIdx.z];
  if (x.data == nullptr) return;
  for (int batch_head = static_cast<int>(blockIdx.y); batch_head < p.batch * x.heads;
       batch_head += static_cast<int>(gridDim.y)) {
    measure_head(p, x, batch_head);
  }
}

// Splits a head into parts; each thread takes chunks of eight columns.
__device__ __forceinline__ void split_head(const SplitOperands& p, const SplitOperand& x,
                                           int batch_head) {
  const int batch = batch_head / x.heads, head = batch_head % x.heads;
  const float* start = x.data + batch * x.strides.batch + head * x.strides.head;
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(start) % 16 == 0 && x.strides.row % 4 == 0;
  const float scale = ldexpf(1, scale_exponent(range_of(p, x, batch_head).magnitude[blockIdx.z]));
  const int chunks = p.padded / 8;
  const std::int64_t plane = std::int64_t{x.rows} * p.padded;
  F16* to = static_cast<F16*>(x.parts) + batch_head * plane * p.parts;
  const std::int64_t count = std::int64_t{x.rows} * chunks;
  for (std::int64_t index = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; index < count;
       index += std::int64_t{kThreads} * gridDim.x) {
    const std::int64_t row = index / chunks;
    const int column = static_cast<int>(index - row * chunks) * 8;
    float a[8];
    load_eight(a, start + row * x.strides.row, column, p.width, is_aligned);
    std::uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      split<F16, 2>(a[2 * i] * scale, a[2 * i + 1] * scale, high[i], low[i]);
    }
    auto* chunk = reinterpret_cast<uint4*>(to + index * 8);
    *chunk = make_uint4(high[0], high[1], high[2], high[3]);
    if (p.parts == 2) chunk[plane / 8] = make_uint4(low[0], low[1], low[2], low[3]);
  }
}

// Splits the operands into parts. blockIdx.x, y and z number chunks, heads and operands.
__global__ void __launch_bounds__(kThreads)
    attention_split_operands_kernel(const __grid_constant__ SplitOperands p) {
  const SplitOperand& x = p.operand[blockIdx.z];
  if (x.data == nullptr) return;
  for (int batch_head = static_cast<int>(blockIdx.y); batch_head < p.batch * x.heads;
       batch_head += static_cast<int>(gridDim.y)) {
    split_head(p, x, batch_head);
  }
}

}  // namespace

cudaError_t find_query_stats(const QueryStats& stats, cudaStream_t stream) {
  const std::int64_t rows = std::int64_t{stats.batch} * stats.heads * stats.pitch;
  const auto blocks = static_cast<unsigned>(rows / kRowsPerBlock);
  if (blocks == 0) return cudaSuccess;
  switch (stats.dtype) {
    case AttentionDType::kBF16:
      attention_query_stats_kernel<BF16><<<blocks, kThreads, 0, stream>>>(stats);
      break;
    case AttentionDType::kF16:
      attention_query_stats_kernel<F16><<<blocks, kThreads, 0, stream>>>(stats);
      break;
    default: attention_query_stats_kernel<float><<<blocks, kThreads, 0, stream>>>(stats);
  }
  return cudaGetLastError();
}

cudaError_t split_operands(const SplitOperands& operands, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(operands.batch * operands.operand[kQ].heads);
  const auto key_heads = static_cast<unsigned>(operands.batch * operands.key_heads);
  int rows = 0;
  for (const SplitOperand& operand : operands.operand) {
    if (operand.data != nullptr) rows = std::max(rows, operand.rows);
  }
  if (heads == 0 || rows == 0) return cudaSuccess;
  const cudaError_t status =
      cudaMemsetAsync(operands.ranges, 0, key_heads * sizeof(HeadRange), stream);
  if (status != cudaSuccess) return status;
  const auto blocks = [&](std::int64_t work) {  // some thousand blocks in all are plenty
    const std::int64_t most = std::max<std::int64_t>(2048 / heads, 1);
    return static_cast<unsigned>(
        std::clamp<std::int64_t>((work + kThreads - 1) / kThreads, 1, most));
  };
  const unsigned grid_heads = std::min(heads, 65535U);
  const dim3 measure(blocks(std::int64_t{rows} * kLanes), grid_heads, kOperands);
  const dim3 split(blocks(std::int64_t{rows} * (operands.padded / 8)), grid_heads, kOperands);
  attention_measure_operands_kernel<<<measure, kThreads, 0, stream>>>(operands);
  attention_split_operands_kernel<<<split, kThreads, 0, stream>>>(operands);
  return cudaGetLastError();
}

}  // namespace tracestep::cuda::portable

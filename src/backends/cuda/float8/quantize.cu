// Two kernels: the largest magnitude of each part of the elements; then tiles of 128 by 128, which
// find the largest of all parts while their elements are on the way. A thread transposes 8 by 8
// codes in registers, so that shared memory moves words of 8 codes either way.
#include "backends/cuda/float8/quantize.h"

#include <cuda_fp8.h>

#include <algorithm>

#include "backends/cuda/numbers.cuh"
#include "backends/cuda/predecessors.cuh"
#include "base/integers.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256, kTile = 128, kSide = 8;  // of a thread's codes
constexpr int kPacks = kTile / kSide;                  // of a tile's row
// 2^-100 as bits: what an operand of zeros has as its largest magnitude.
constexpr std::uint32_t kLeastBits = (127u - 100u) << 23;

__device__ __forceinline__ std::uint32_t magnitude_bits_of(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

// Returns the largest of the block's threads, in thread 0. Magnitudes are ordered as their bits
// are, with infinity and NaN last.
__device__ __forceinline__ std::uint32_t block_max(std::uint32_t own, std::uint32_t* scratch) {
  own = __reduce_max_sync(0xffffffffu, own);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  std::uint32_t out = scratch[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) out = ::max(out, scratch[i]);
  return out;
}

struct MaximaArgs {
  const void* x;
  std::int64_t rows, columns, leading;  // in packs, where there are packs
  std::uint32_t* maxima;
};

// kSize elements at once.
template <class T, int kSize>
__global__ void __launch_bounds__(kThreads) maxima_kernel(Predecessors before, MaximaArgs a) {
  before.wait();
  using Elements = Pack<T, kSize>;
  __shared__ std::uint32_t scratch[kThreads / 32];
  const auto* x = static_cast<const Elements*>(a.x);
  const std::int64_t count = a.rows * a.columns, step = std::int64_t{gridDim.x} * kThreads;
  std::uint32_t largest = 0;
  constexpr int kAhead = 4;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += kAhead * step) {
    Elements held[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {  // past the end: the first one again
      const std::int64_t at = i + k * step < count ? i + k * step : i;
      const std::int64_t row = a.rows == 1 ? 0 : at / a.columns;
      held[k] = x[row * a.leading + (at - row * a.columns)];
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        largest = ::max(largest, magnitude_bits_of(to_float(held[k].at[j])));
      }
    }
  }
  largest = block_max(largest, scratch);
  if (threadIdx.x == 0) a.maxima[blockIdx.x] = largest;
}

struct TileArgs {
  Quantization q;
  int parts;
  std::int64_t tiles_across;
  bool has_packs, codes_in_packs, transposed_in_packs;  // of 8 elements
};

// Two codes; the first one in the lower byte.
template <bool kIsE5M2>
__device__ __forceinline__ std::uint32_t two_codes(float first, float second) {
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE,
                                  kIsE5M2 ? __NV_E5M2 : __NV_E4M3);
}

template <class T>
__device__ __forceinline__ void load_side(const TileArgs& a, std::int64_t row, std::int64_t column,
                                          Pack<T, kSide>& to) {
  const T* x = static_cast<const T*>(a.q.x) + row * a.q.leading + column;
#pragma unroll
  for (int j = 0; j < kSide; ++j) to.at[j] = from_float<T>(0.0f);
  if (row >= a.q.rows) return;
  if (a.has_packs) {
    if (column < a.q.columns) to = *reinterpret_cast<const Pack<T, kSide>*>(x);
    return;
  }
  for (int j = 0; j < kSide && column + j < a.q.columns; ++j) to.at[j] = x[j];
}

// 8 codes of a row of `width`, from `column` on.
__device__ __forceinline__ void store_side(std::uint8_t* row, std::int64_t column,
                                           std::int64_t width, bool in_packs, uint2 codes) {
  if (in_packs) {
    if (column < width) *reinterpret_cast<uint2*>(row + column) = codes;
    return;
  }
  for (int j = 0; j < kSide && column + j < width; ++j) {
    row[column + j] = static_cast<std::uint8_t>((j < 4 ? codes.x : codes.y) >> (8 * (j % 4)));
  }
}

// Byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(const std::uint32_t (&from)[4],
                                                std::uint32_t (&to)[4]) {
  const std::uint32_t low_a = __byte_perm(from[0], from[1], 0x5140),
                      high_a = __byte_perm(from[0], from[1], 0x7362),
                      low_b = __byte_perm(from[2], from[3], 0x5140),
                      high_b = __byte_perm(from[2], from[3], 0x7362);
  to[0] = __byte_perm(low_a, low_b, 0x5410);
  to[1] = __byte_perm(low_a, low_b, 0x7632);
  to[2] = __byte_perm(high_a, high_b, 0x5410);
  to[3] = __byte_perm(high_a, high_b, 0x7632);
}

// A thread has 8 rows of 8 codes, words[row][half]. The chunks of a column of the tile are stored
// in an order that keeps 16 threads, of one row and of one column alike, on different banks.
__device__ __forceinline__ void store_transposed(const TileArgs& a, std::int64_t first_row,
                                                 std::int64_t first_column,
                                                 const std::uint32_t (&words)[kSide][2]) {
  __shared__ uint2 tile[kTile][kPacks];
  const int c = static_cast<int>(threadIdx.x) % kPacks, g = static_cast<int>(threadIdx.x) / kPacks;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t upper[4], lower[4];
    transpose_bytes({words[0][half], words[1][half], words[2][half], words[3][half]}, upper);
    transpose_bytes({words[4][half], words[5][half], words[6][half], words[7][half]}, lower);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      tile[c * kSide + half * 4 + j][g ^ c] = make_uint2(upper[j], lower[j]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = g; i < kTile; i += kThreads / kPacks) {
    const std::int64_t column = first_column + i;
    if (column >= a.q.columns) break;
    store_side(a.q.transposed + column * a.q.rows, first_row + c * kSide, a.q.rows,
               a.transposed_in_packs, tile[i][c ^ (i / kSide)]);
  }
}

template <class T, bool kIsE5M2>
__global__ void __launch_bounds__(kThreads) codes_kernel(Predecessors before, TileArgs a) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const std::int64_t first_row = blockIdx.x / a.tiles_across * kTile,
                     first_column = blockIdx.x % a.tiles_across * kTile;
  const std::int64_t column = first_column + threadIdx.x % kPacks * kSide,
                     row = first_row + threadIdx.x / kPacks * kSide;
  Pack<T, kSide> held[kSide];
#pragma unroll
  for (int i = 0; i < kSide; ++i) load_side(a, row + i, column, held[i]);
  std::uint32_t bits = kLeastBits;
  for (int i = static_cast<int>(threadIdx.x); i < a.parts; i += kThreads) {
    bits = ::max(bits, a.q.maxima[i]);
  }
  const float largest = __uint_as_float(block_max(bits, scratch));
  const float inverse = __fdiv_rn(a.q.largest, largest);
  if (blockIdx.x == 0 && threadIdx.x == 0 && a.q.scale != nullptr) {
    *a.q.scale = __fdiv_rn(largest, a.q.largest);
  }
  std::uint32_t words[kSide][2];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto scaled = [&](int j) { return to_float(held[i].at[half * 4 + j]) * inverse; };
      words[i][half] =
          two_codes<kIsE5M2>(scaled(0), scaled(1)) | two_codes<kIsE5M2>(scaled(2), scaled(3)) << 16;
    }
    if (a.q.codes != nullptr && row + i < a.q.rows) {
      store_side(a.q.codes + (row + i) * a.q.columns, column, a.q.columns, a.codes_in_packs,
                 make_uint2(words[i][0], words[i][1]));
    }
  }
  if (a.q.transposed != nullptr) store_transposed(a, first_row, first_column, words);
}

template <class T>
cudaError_t launch_maxima(const Quantization& q, int parts, bool in_packs,
                          const LaunchStream& stream) {
  constexpr int kSize = kPack<T>;
  MaximaArgs a{q.x, q.rows, q.columns, q.leading, q.maxima};
  if (q.leading == q.columns) a = {q.x, 1, q.rows * q.columns, 0, q.maxima};
  const LaunchSize size{.blocks = dim3(static_cast<unsigned>(parts)), .threads = dim3(kThreads)};
  if (!in_packs) return launch_kernel(stream, size, maxima_kernel<T, 1>, a);
  a.columns /= kSize;
  a.leading /= kSize;
  return launch_kernel(stream, size, maxima_kernel<T, kSize>, a);
}

}  // namespace

cudaError_t quantize(const Quantization& q, const LaunchStream& stream) {
  const auto parts = static_cast<int>(quantize_parts(q.rows * q.columns));
  // One tile of nothing writes the scale of nothing.
  const std::int64_t across = std::max<std::int64_t>(1, ceil_div(q.columns, kTile)),
                     down = std::max<std::int64_t>(1, ceil_div(q.rows, kTile));
  const TileArgs a{
      .q = q,
      .parts = parts,
      .tiles_across = across,
      .has_packs = q.columns % kSide == 0 && q.leading % kSide == 0 && is_aligned(q.x, 16),
      .codes_in_packs = q.columns % kSide == 0 && is_aligned(q.codes, kSide),
      .transposed_in_packs = q.rows % kSide == 0 && is_aligned(q.transposed, kSide)};
  cudaError_t status = cudaSuccess;
  with_floating(q.dtype, [&]<class T>(T) {
    status = launch_maxima<T>(q, parts, a.has_packs, stream);
    if (status != cudaSuccess) return;
    const LaunchSize size{.blocks = dim3(static_cast<unsigned>(across * down)),
                          .threads = dim3(kThreads)};
    status = launch_kernel(
        stream, size,
        q.code_dtype == DType::kF8E5M2 ? codes_kernel<T, true> : codes_kernel<T, false>, a);
  });
  return status;
}

}  // namespace tracestep::cuda

// Tiles of 128 by 128 elements in 8-bit codes, as they lie and transposed. A thread transposes 8 by
// 8 codes in registers, so that shared memory moves words of 8 codes either way.
//
// The elements to quantize come from a source, which a tensor or a computation can be:
//   using Element;                    // float, BF16 or F16
//   static constexpr int kParts;      // matrices beside one another, of equal width
//   std::int64_t rows, columns;       // of each
//   static constexpr int kBlocks;     // of threads that fit on a multiprocessor
//   void load(row, column, Pack<Element, 8> (&to)[kParts]) const;  // row and column are in it
#pragma once

#include <cuda_fp8.h>

#include "backends/cuda/numbers.cuh"
#include "backends/cuda/predecessors.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda::float8 {

// Threads of a block, the side of a tile, and the side of the square of codes that a thread makes.
constexpr int kThreads = 256, kTile = kQuantizeTile, kSide = 8;
constexpr int kPacks = kTile / kSide;  // packs in a row of a tile
// The bits of 2^-100, which counts as the largest magnitude of an operand whose elements are all 0.
constexpr std::uint32_t kLeastBits = (127u - 100u) << 23;

__device__ __forceinline__ std::uint32_t magnitude_bits_of(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

// Returns, in all threads, the largest `own` of the block's threads: the bits of a magnitude, which
// are ordered as magnitudes are, with infinity and NaN last.
__device__ __forceinline__ std::uint32_t block_max(std::uint32_t own, std::uint32_t* scratch) {
  own = __reduce_max_sync(0xffffffffu, own);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  std::uint32_t out = scratch[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) out = ::max(out, scratch[i]);
  return out;
}

// Returns the largest of `count` maxima in memory, at least 2^-100.
__device__ __forceinline__ float largest_of(const std::uint32_t* maxima, int count,
                                            std::uint32_t* scratch) {
  std::uint32_t bits = kLeastBits;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    bits = ::max(bits, maxima[i]);
  }
  return __uint_as_float(block_max(bits, scratch));
}

template <class T>
__device__ __forceinline__ Pack<T, kSide> no_elements() {
  Pack<T, kSide> out;
#pragma unroll
  for (int j = 0; j < kSide; ++j) out.at[j] = from_float<T>(0.0f);
  return out;
}

// Loads 8 neighbouring elements of a row of which `left` are left; zeros after those.
template <class T>
__device__ __forceinline__ Pack<T, kSide> load_side(const T* from, std::int64_t left,
                                                    bool has_packs) {
  if (has_packs) return *reinterpret_cast<const Pack<T, kSide>*>(from);
  Pack<T, kSide> out = no_elements<T>();
  for (int j = 0; j < kSide && j < left; ++j) out.at[j] = from[j];
  return out;
}

// Where codes are written. Either pointer may be null, if nobody reads its codes.
struct Codes {
  std::uint8_t* codes = nullptr;       // [rows, columns]
  std::uint8_t* transposed = nullptr;  // [columns, rows]
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;  // elements from row to row of `transposed`
  float limit = 0;           // the largest magnitude among the codes
  bool codes_in_packs = false, transposed_in_packs = false;  // rows are whole packs of 8 codes
};

// Returns the codes of two numbers: the code of `first` in the lower byte, that of `second` above.
template <bool kIsE5M2>
__device__ __forceinline__ std::uint32_t two_codes(float first, float second) {
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE,
                                  kIsE5M2 ? __NV_E5M2 : __NV_E4M3);
}

// Stores 8 codes to a row from `column` on, but none at or after `end`. `in_packs`: all 8 at once.
__device__ __forceinline__ void store_side(std::uint8_t* row, std::int64_t column, std::int64_t end,
                                           bool in_packs, uint2 codes) {
  if (in_packs) {
    if (column < end) *reinterpret_cast<uint2*>(row + column) = codes;
    return;
  }
  for (int j = 0; j < kSide && column + j < end; ++j) {
    row[column + j] = static_cast<std::uint8_t>((j < 4 ? codes.x : codes.y) >> (8 * (j % 4)));
  }
}

// Transposes bytes: byte i of word j becomes byte j of word i.
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

// Where a tile lies in its part of the result: rows from `row` on, columns from `begin` on and
// before `end`.
struct Place {
  std::int64_t row, begin, end;
};

// Stores a tile of codes transposed, by way of shared memory. A thread has 8 rows of 8 codes, four
// in each of words[row][0] and words[row][1]. With kRun 8 these are 8 adjacent columns; with kRun
// 4, 4 in the left half of the tile and 4 in its right half. The order of chunks in shared memory
// keeps the 16 threads that write a row, or read a column, on different banks.
template <int kRun = kSide>
__device__ __forceinline__ void store_transposed(const Codes& to, const Place& place,
                                                 const std::uint32_t (&words)[kSide][2]) {
  __shared__ uint2 tile[kTile][kPacks];
  const int c = static_cast<int>(threadIdx.x) % kPacks, g = static_cast<int>(threadIdx.x) / kPacks;
  __syncthreads();  // the tile before has been read
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t upper[4], lower[4];
    transpose_bytes({words[0][half], words[1][half], words[2][half], words[3][half]}, upper);
    transpose_bytes({words[4][half], words[5][half], words[6][half], words[7][half]}, lower);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int first = kRun == kSide ? c * kSide + half * 4 : half * (kTile / 2) + c * 4;
      tile[first + j][g ^ c] = make_uint2(upper[j], lower[j]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = g; i < kTile; i += kThreads / kPacks) {
    const std::int64_t column = place.begin + i;
    if (column >= place.end) break;
    store_side(to.transposed + column * to.leading, place.row + c * kSide, to.rows,
               to.transposed_in_packs, tile[i][c ^ (i / kRun % kPacks)]);
  }
}

// Finds the largest magnitude of a thread's elements; compares 16-bit elements in pairs.
template <class T>
struct Magnitude {
  std::uint32_t largest = 0;

  __device__ __forceinline__ void take(const Pack<T, kSide>& x) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) largest = ::max(largest, magnitude_bits_of(x.at[j]));
  }
  __device__ __forceinline__ std::uint32_t bits() const {
    return largest;
  }
};

template <class Pair>
struct PairMagnitude {
  Pair largest = {};

  template <class T>
  __device__ __forceinline__ void take(const Pack<T, kSide>& x) {
#pragma unroll
    for (int j = 0; j < kSide; j += 2) {
      largest = __hmax2_nan(largest, __habs2(Pair(x.at[j], x.at[j + 1])));
    }
  }
  __device__ __forceinline__ std::uint32_t bits() const {
    return ::max(magnitude_bits_of(to_float(largest.x)), magnitude_bits_of(to_float(largest.y)));
  }
};
template <>
struct Magnitude<BF16> : PairMagnitude<__nv_bfloat162> {};
template <>
struct Magnitude<F16> : PairMagnitude<__half2> {};

template <bool kIsE5M2, class T>
__device__ __forceinline__ uint2 codes_of(const Pack<T, kSide>& x, float inverse) {
  std::uint32_t words[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto scaled = [&](int j) { return to_float(x.at[half * 4 + j]) * inverse; };
    words[half] =
        two_codes<kIsE5M2>(scaled(0), scaled(1)) | two_codes<kIsE5M2>(scaled(2), scaled(3)) << 16;
  }
  return make_uint2(words[0], words[1]);
}

// Writes the codes of one tile in each of the source's parts; returns the largest magnitude of this
// thread's elements.
template <bool kIsE5M2, class S>
__device__ __forceinline__ std::uint32_t write_tile(const S& source, const Codes& to,
                                                    std::int64_t tile, float inverse) {
  using T = typename S::Element;
  const std::int64_t across = ::max((source.columns + kTile - 1) / kTile, std::int64_t{1}),
                     first_row = tile / across * kTile, first_column = tile % across * kTile,
                     row = first_row + threadIdx.x / kPacks * kSide,
                     column = first_column + threadIdx.x % kPacks * kSide;
  std::uint32_t words[S::kParts][kSide][2];
  Magnitude<T> magnitude;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    Pack<T, kSide> parts[S::kParts];
    const bool is_inside = row + i < source.rows && column < source.columns;
    if (is_inside) source.load(row + i, column, parts);
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) {
      if (is_inside) magnitude.take(parts[p]);
      const uint2 codes = is_inside ? codes_of<kIsE5M2>(parts[p], inverse) : make_uint2(0, 0);
      words[p][i][0] = codes.x;
      words[p][i][1] = codes.y;
      if (to.codes != nullptr && is_inside) {
        store_side(to.codes + (row + i) * to.columns, p * source.columns + column,
                   (p + 1) * source.columns, to.codes_in_packs, codes);
      }
    }
  }
  if (to.transposed == nullptr) return magnitude.bits();
#pragma unroll
  for (int p = 0; p < S::kParts; ++p) {
    const std::int64_t before = p * source.columns;
    store_transposed(to, {first_row, before + first_column, before + source.columns}, words[p]);
  }
  return magnitude.bits();
}

// delayed_codes_kernel() and checked_codes_kernel() read and write these besides source and codes.
struct Delay {
  const float* last = nullptr;
  float* largest = nullptr;         // may be where `last` is
  float* scale = nullptr;           // this and the one above may be null: nobody reads it
  std::uint32_t* maxima = nullptr;  // workspace: of each tile, and behind them `last`
  int tiles = 0;
  float room = 1;  // how many times as large, or small, magnitudes may be for the scale to fit
};

// Returns the magnitude whose code is the largest one with the scale of the step before: room ·
// last, at most float32's largest number. NaN stays NaN.
__device__ __forceinline__ float reach_of(float last, float room) {
  const float reach = room * last;
  return reach > 0x1.fffffep127f ? 0x1.fffffep127f : reach;
}

// Writes codes with the scale of the step before, and the largest magnitude of each tile.
template <class S, bool kIsE5M2>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    delayed_codes_kernel(Predecessors before, S source, Codes to, Delay delay) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const float last = *delay.last, inverse = __fdiv_rn(to.limit, reach_of(last, delay.room));
  const std::uint32_t own = write_tile<kIsE5M2>(source, to, blockIdx.x, inverse),
                      largest = block_max(own, scratch);
  if (threadIdx.x == 0) {
    delay.maxima[blockIdx.x] = largest;
    if (blockIdx.x == 0) delay.maxima[delay.tiles] = __float_as_uint(last);
  }
}

// Runs after delayed_codes_kernel: checks that the scale fits, or else writes the codes again, with
// a scale for the largest magnitude that the kernel found.
template <class S, bool kIsE5M2>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    checked_codes_kernel(Predecessors before, S source, Codes to, Delay delay) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const float now = largest_of(delay.maxima, delay.tiles, scratch),
              last = __uint_as_float(delay.maxima[delay.tiles]), reach = reach_of(last, delay.room);
  const bool fits = now <= reach && last <= delay.room * now;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (delay.scale != nullptr) *delay.scale = __fdiv_rn(fits ? reach : now, to.limit);
    if (delay.largest != nullptr) *delay.largest = now;
  }
  if (fits) return;
  for (std::int64_t tile = blockIdx.x; tile < delay.tiles; tile += gridDim.x) {
    write_tile<kIsE5M2>(source, to, tile, __fdiv_rn(to.limit, now));
  }
}

template <class S>
cudaError_t quantize_delayed(const S& source, const Codes& to, const Delay& delay, bool is_e5m2,
                             const LaunchStream& stream) {
  constexpr int kCheckers = 128;  // blocks: most often they only look
  const auto blocks = static_cast<unsigned>(delay.tiles);
  LaunchSize size{.blocks = dim3(blocks), .threads = dim3(kThreads)};
  const cudaError_t status = launch_kernel(
      stream, size, is_e5m2 ? delayed_codes_kernel<S, true> : delayed_codes_kernel<S, false>,
      source, to, delay);
  if (status != cudaSuccess) return status;
  size.blocks = dim3(::min(blocks, static_cast<unsigned>(kCheckers)));
  return launch_kernel(stream, size,
                       is_e5m2 ? checked_codes_kernel<S, true> : checked_codes_kernel<S, false>,
                       source, to, delay);
}

}  // namespace tracestep::cuda::float8

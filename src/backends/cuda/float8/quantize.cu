#include "backends/cuda/float8/quantize.h"

#include <algorithm>

#include "backends/cuda/float8/tiles.cuh"
#include "base/integers.h"

namespace tracestep::cuda {
namespace {

using namespace float8;

struct MaximaArgs {
  const void* x;
  std::int64_t rows, columns, leading;  // in packs, where there are packs
  std::uint32_t* maxima;
};

// Writes the largest magnitude that each thread block finds; it reads kSize elements at once.
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

// A source (tiles.cuh) that reads a matrix from memory.
template <class T>
struct Stored {
  using Element = T;
  static constexpr int kParts = 1, kBlocks = sizeof(T) == 2 ? 4 : 2;
  const T* x;
  std::int64_t rows, columns, leading;
  bool has_packs;

  __device__ __forceinline__ void load(std::int64_t row, std::int64_t column,
                                       Pack<T, kSide> (&to)[1]) const {
    to[0] = load_side(x + row * leading + column, columns - column, has_packs);
  }
};

template <class S, bool kIsE5M2>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    codes_kernel(Predecessors before, S source, Codes to, const std::uint32_t* maxima, int parts,
                 float* scale) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const float largest = largest_of(maxima, parts, scratch);
  if (blockIdx.x == 0 && threadIdx.x == 0 && scale != nullptr) {
    *scale = __fdiv_rn(largest, to.limit);
  }
  write_tile<kIsE5M2>(source, to, blockIdx.x, __fdiv_rn(to.limit, largest));
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

// Quantizes. An empty matrix counts as one tile, so that a scale is written for it, too.
template <class T>
cudaError_t quantize_as(const Quantization& q, const Codes& to, const LaunchStream& stream) {
  using S = Stored<T>;
  const S source{static_cast<const T*>(q.x), q.rows, q.columns, q.leading,
                 q.columns % kSide == 0 && q.leading % kSide == 0 && is_aligned(q.x, 16)};
  const auto tiles = static_cast<int>(quantize_tiles(q.rows, q.columns));
  const bool is_e5m2 = q.code_dtype == DType::kF8E5M2;
  if (q.last != nullptr) {
    return quantize_delayed(source, to, {q.last, q.largest, q.scale, q.maxima, tiles, q.room},
                            is_e5m2, stream);
  }
  const auto parts = static_cast<int>(quantize_parts(q.rows * q.columns));
  const cudaError_t status = launch_maxima<T>(q, parts, source.has_packs, stream);
  if (status != cudaSuccess) return status;
  const LaunchSize size{.blocks = dim3(static_cast<unsigned>(tiles)), .threads = dim3(kThreads)};
  return launch_kernel(stream, size, is_e5m2 ? codes_kernel<S, true> : codes_kernel<S, false>,
                       source, to, q.maxima, parts, q.scale);
}

}  // namespace

cudaError_t quantize(const Quantization& q, const LaunchStream& stream) {
  const Codes to{.codes = q.codes,
                 .transposed = q.transposed,
                 .rows = q.rows,
                 .columns = q.columns,
                 .leading = q.rows,
                 .limit = q.limit,
                 .codes_in_packs = q.columns % kSide == 0 && is_aligned(q.codes, kSide),
                 .transposed_in_packs = q.rows % kSide == 0 && is_aligned(q.transposed, kSide)};
  cudaError_t status = cudaSuccess;
  with_floating(q.dtype, [&]<class T>(T) { status = quantize_as<T>(q, to, stream); });
  return status;
}

}  // namespace tracestep::cuda

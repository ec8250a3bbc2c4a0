// Operands become parts in tiles of 64 by 64 elements of the stored matrix: a block reads its tile
// once, finds the largest magnitude of each row and column, and writes the parts along the rows,
// those down the columns, or both.
#include "backends/cuda/split/parts.cuh"

#include "base/integers.h"

namespace tracestep::cuda {
namespace {

constexpr int kTile = SplitPartsPlan::kBlock, kThreads = 256, kWarps = kThreads / 32;
constexpr int kRowThreads = kTile / 4;            // that share a row, four elements each
constexpr int kRowStep = kThreads / kRowThreads;  // rows that are read at once
constexpr int kHeld = kTile / kRowStep;           // packs of four elements in a thread
constexpr int kMostSources = 3;

struct SplitSources {
  SplitSource of[kMostSources];
};

// The first row and column of a tile, and its matrix in the batch.
struct TilePlace {
  std::int64_t row, column, batch;
};

__device__ __forceinline__ TilePlace place_of(const SplitSource& s, unsigned block) {
  const auto across = static_cast<unsigned>((s.columns + kTile - 1) / kTile);
  const auto down = static_cast<unsigned>((s.rows + kTile - 1) / kTile);
  return {.row = std::int64_t{block / across % down} * kTile,
          .column = std::int64_t{block % across} * kTile,
          .batch = block / across / down};
}

// Loads four elements of a row from `column` on; zeros outside the matrix.
__device__ __forceinline__ float4 load4(const SplitSource& s, const TilePlace& at, int row,
                                        int column) {
  float4 out = make_float4(0, 0, 0, 0);
  if (at.row + row >= s.rows) return out;
  const std::int64_t begin = at.column + column;
  const float* x = s.data + at.batch * s.batch_stride + (at.row + row) * s.leading + begin;
  if (s.has_vectors && begin + 4 <= s.columns) return __ldg(reinterpret_cast<const float4*>(x));
  if (begin < s.columns) out.x = __ldg(x);
  if (begin + 1 < s.columns) out.y = __ldg(x + 1);
  if (begin + 2 < s.columns) out.z = __ldg(x + 2);
  if (begin + 3 < s.columns) out.w = __ldg(x + 3);
  return out;
}

// Stores both parts of four elements that are neighbours along K, scaled, in one row of an operand.
__device__ __forceinline__ void store4(const SplitParts& to, std::int64_t batch, std::int64_t row,
                                       std::int64_t k, const float4& x, const Scaling& scaling) {
  const float2 first = make_float2(scaling(x.x), scaling(x.y)),
               second = make_float2(scaling(x.z), scaling(x.w));
  union Four {
    __half2 pairs[2];
    uint2 bits;
  } high, low;
  high.pairs[0] = __float22half2_rn(first);
  high.pairs[1] = __float22half2_rn(second);
  const float2 h0 = __half22float2(high.pairs[0]), h1 = __half22float2(high.pairs[1]);
  low.pairs[0] = __float22half2_rn(make_float2(first.x - h0.x, first.y - h0.y));
  low.pairs[1] = __float22half2_rn(make_float2(second.x - h1.x, second.y - h1.y));
  const std::int64_t plane = to.rows * to.padded_k;
  __half* out = to.parts + 2 * batch * plane + row * to.padded_k + k;
  *reinterpret_cast<uint2*>(out) = high.bits;
  *reinterpret_cast<uint2*>(out + plane) = low.bits;
}

__device__ __forceinline__ void store_scale(const SplitParts& to, std::int64_t batch,
                                            std::int64_t row, std::int64_t k, float scale) {
  const std::int64_t block = batch * (to.padded_k / kTile) + k / kTile;
  if (row < to.scale_rows) to.scales[block * to.scale_rows + row] = scale;
}

__device__ __forceinline__ std::uint32_t largest_of(const float4& x) {
  return max(max(magnitude_bits(x.x), magnitude_bits(x.y)),
             max(magnitude_bits(x.z), magnitude_bits(x.w)));
}

// Splits a tile where K runs along the stored rows: 16 threads share each row of the tile.
__device__ __forceinline__ void split_along(const SplitSource& s, const TilePlace& at,
                                            const float4 (&x)[kHeld]) {
  const int row = static_cast<int>(threadIdx.x) / kRowThreads,
            column = static_cast<int>(threadIdx.x) % kRowThreads * 4;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    std::uint32_t largest = largest_of(x[i]);
#pragma unroll
    for (int far = kRowThreads / 2; far > 0; far /= 2)
      largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, far));
    const Scaling scaling(largest);
    const std::int64_t of_all = at.row + row + i * kRowStep;
    if (column == 0) store_scale(s.along, at.batch, of_all, at.column, scaling.scale());
    if (of_all < s.rows) store4(s.along, at.batch, of_all, at.column + column, x[i], scaling);
  }
}

// Splits a tile where K runs down the stored rows: through shared memory, so that neighbours along
// K are written together.
__device__ __forceinline__ void split_down(const SplitSource& s, const TilePlace& at,
                                           const float4 (&x)[kHeld]) {
  __shared__ float tile[kTile][kTile + 1];
  __shared__ std::uint32_t largest[kWarps][kTile];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int column = thread % kRowThreads * 4;
  std::uint32_t found[4]{};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    float* row = &tile[thread / kRowThreads + i * kRowStep][column];
    const float four[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      row[j] = four[j];
      found[j] = max(found[j], magnitude_bits(four[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {  // the other row of the warp
    found[j] = max(found[j], __shfl_xor_sync(0xffffffffU, found[j], kRowThreads));
    if (lane < kRowThreads) largest[warp][column + j] = found[j];
  }
  __syncthreads();
  // Half a warp writes one column of the tile; each thread writes four of its elements along K.
  const int k = lane % kRowThreads * 4;
#pragma unroll
  for (int i = thread / kRowThreads; i < kTile; i += kRowStep) {
    std::uint32_t most = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = max(most, largest[w][i]);
    const Scaling scaling(most);
    const std::int64_t row = at.column + i;
    if (k == 0) store_scale(s.down, at.batch, row, at.row, scaling.scale());
    if (row >= s.columns) continue;
    const float4 four = make_float4(tile[k][i], tile[k + 1][i], tile[k + 2][i], tile[k + 3][i]);
    store4(s.down, at.batch, row, at.row + k, four, scaling);
  }
}

__global__ void __launch_bounds__(kThreads)
    split_parts_kernel(Predecessors before, const __grid_constant__ SplitSources all) {
  before.wait();
  int source = 0;
#pragma unroll
  for (int i = 1; i < kMostSources; ++i) source += blockIdx.x >= all.of[i].first_block ? 1 : 0;
  const SplitSource& s = all.of[source];
  const TilePlace at = place_of(s, blockIdx.x - s.first_block);
  const int row = static_cast<int>(threadIdx.x) / kRowThreads,
            column = static_cast<int>(threadIdx.x) % kRowThreads * 4;
  float4 x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) x[i] = load4(s, at, row + i * kRowStep, column);
  if (s.along.parts != nullptr) split_along(s, at, x);
  if (s.down.parts != nullptr) split_down(s, at, x);
}

bool can_read_vectors(const SplitSource& s) {
  const auto is_whole = [](std::int64_t elements) { return elements % 4 == 0; };
  return reinterpret_cast<std::uintptr_t>(s.data) % 16 == 0 &&
         (s.rows == 1 || is_whole(s.leading)) && (s.batch == 1 || is_whole(s.batch_stride));
}

}  // namespace

cudaError_t split_sources(std::span<const SplitSource> sources, const LaunchStream& stream) {
  if (sources.size() > kMostSources) return cudaErrorInvalidValue;
  SplitSources all{};
  std::int64_t blocks = 0;
  for (int i = 0; i < kMostSources; ++i) {
    SplitSource& s = all.of[i];
    const bool is_there = static_cast<std::size_t>(i) < sources.size();
    if (is_there) s = sources[static_cast<std::size_t>(i)];
    s.first_block = static_cast<unsigned>(blocks);
    if (!is_there) continue;
    s.has_vectors = can_read_vectors(s);
    blocks += ceil_div(s.rows, kTile) * ceil_div(s.columns, kTile) * s.batch;
  }
  // Unused sources start past the last block, so no block picks them.
  return launch_kernel(stream, {static_cast<unsigned>(blocks), kThreads}, split_parts_kernel, all);
}

}  // namespace tracestep::cuda

// Operands of products by parts: largest magnitudes of rows, and the parts. Where K runs along the
// stored rows some warps do both for a row; where it runs down, one kernel finds the largest of
// every 256 elements of K and another transposes tiles of 64 by 64.
#include <algorithm>

#include "backends/cuda/split/parts.cuh"
#include "base/integers.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kTile = 64;

struct SplitSources {
  SplitSource a, b;
};

// The operand that a block works on, and its place there.
__device__ __forceinline__ const SplitSource& source_of(const SplitSources& both, unsigned& block) {
  const bool is_second = blockIdx.x >= both.b.first_block;
  const SplitSource& source = is_second ? both.b : both.a;
  block = blockIdx.x - source.first_block;
  return source;
}

// --- K runs down the stored rows -----------------------------------------------------------------

// A block: 64 rows of the operand and 256 elements of K.
__global__ void __launch_bounds__(kThreads)
    split_maxima_kernel(Predecessors before, const SplitSources both) {
  before.wait();
  unsigned block;
  const SplitSource& s = source_of(both, block);
  const auto groups = static_cast<unsigned>((s.rows + kTile - 1) / kTile);
  const std::int64_t first_row = std::int64_t{block % groups} * kTile;
  const int chunk = static_cast<int>(block / groups % static_cast<unsigned>(s.chunks));
  const int batch = static_cast<int>(block / groups / static_cast<unsigned>(s.chunks));
  const int column = static_cast<int>(threadIdx.x) % kTile,
            part = static_cast<int>(threadIdx.x) / kTile;
  constexpr int kPartsOfBlock = kThreads / kTile;
  constexpr std::int64_t kRows = SplitProductPlan::kMaximaRows;
  const std::int64_t row = first_row + column, begin = chunk * kRows, end = min(s.k, begin + kRows);
  std::uint32_t largest = 0;
  if (row < s.rows) {
    const float* x = s.from.data + batch * s.from.batch_stride + row;
#pragma unroll 16
    for (int i = 0; i < kRows / kPartsOfBlock; ++i) {
      const std::int64_t k = begin + part + i * kPartsOfBlock;
      if (k < end) largest = max(largest, magnitude_bits(__ldg(x + k * s.from.leading)));
    }
  }
  __shared__ std::uint32_t found[kPartsOfBlock][kTile];
  found[part][column] = largest;
  __syncthreads();
  if (part != 0 || row >= s.rows) return;
#pragma unroll
  for (int i = 1; i < kPartsOfBlock; ++i) largest = max(largest, found[i][column]);
  s.maxima[(std::int64_t{batch} * s.chunks + chunk) * s.rows + row] = largest;
}

// A block splits a tile of 64 rows of the operand and 64 elements of K.
__device__ void split_down(const SplitSource& s, unsigned block) {
  __shared__ float tile[kTile][kTile + 1];  // [k][row]
  __shared__ std::uint32_t largest_of[kTile];
  const auto groups = static_cast<unsigned>((s.rows + kTile - 1) / kTile);
  const auto k_tiles = static_cast<unsigned>(s.padded_k / kTile);
  const std::int64_t first_row = std::int64_t{block % groups} * kTile;
  const std::int64_t first_k = std::int64_t{block / groups % k_tiles} * kTile;
  const int batch = static_cast<int>(block / groups / k_tiles);
  const int thread = static_cast<int>(threadIdx.x), column = thread % kTile, part = thread / kTile;
  const std::int64_t row = first_row + column;
  const float* x = s.from.data + batch * s.from.batch_stride + row;
#pragma unroll
  for (int i = 0; i < kTile; i += kThreads / kTile) {
    const std::int64_t k = first_k + i + part;
    tile[i + part][column] = row < s.rows && k < s.k ? __ldg(x + k * s.from.leading) : 0.0F;
  }
  if (part == 0) {
    std::uint32_t largest = 0;
    if (row < s.rows) {
      const std::uint32_t* maxima = s.maxima + std::int64_t{batch} * s.chunks * s.rows + row;
      for (int c = 0; c < s.chunks; ++c) largest = max(largest, maxima[c * s.rows]);
      if (first_k == 0) s.scales[batch * s.rows + row] = largest;
    }
    largest_of[column] = largest;
  }
  __syncthreads();
  // A warp writes rows of 64 elements, two for each lane.
  const int lane = thread % 32;
  const std::int64_t plane = s.rows * s.padded_k;
  __half* parts = s.parts + 2 * batch * plane + first_k + 2 * lane;
#pragma unroll
  for (int i = thread / 32; i < kTile; i += kWarps) {
    if (first_row + i >= s.rows) break;
    const Scaling scaling(largest_of[i]);
    const Parts even = parts_of(scaling(tile[2 * lane][i])),
                odd = parts_of(scaling(tile[2 * lane + 1][i]));
    __half* out = parts + (first_row + i) * s.padded_k;
    *reinterpret_cast<__half2*>(out) = __halves2half2(even.high, odd.high);
    *reinterpret_cast<__half2*>(out + plane) = __halves2half2(even.low, odd.low);
  }
}

// --- K runs along the stored rows ----------------------------------------------------------------

// Elements of x from k on; zeros from `end` on.
__device__ __forceinline__ float4 load4(const SplitSource& s, const float* x, std::int64_t k,
                                        std::int64_t end) {
  if (s.has_vectors && k + 4 <= end) return __ldg(reinterpret_cast<const float4*>(x + k));
  float4 out = make_float4(0, 0, 0, 0);
  if (k < end) out.x = __ldg(x + k);
  if (k + 1 < end) out.y = __ldg(x + k + 1);
  if (k + 2 < end) out.z = __ldg(x + k + 2);
  if (k + 3 < end) out.w = __ldg(x + k + 3);
  return out;
}

__device__ __forceinline__ void store4(__half* high, __half* low, const float4& x,
                                       const Scaling& scaling) {
  const Parts p[4] = {parts_of(scaling(x.x)), parts_of(scaling(x.y)), parts_of(scaling(x.z)),
                      parts_of(scaling(x.w))};
  union Four {
    __half2 pairs[2];
    uint2 bits;
  } h, l;
  h.pairs[0] = __halves2half2(p[0].high, p[1].high);
  h.pairs[1] = __halves2half2(p[2].high, p[3].high);
  l.pairs[0] = __halves2half2(p[0].low, p[1].low);
  l.pairs[1] = __halves2half2(p[2].low, p[3].low);
  *reinterpret_cast<uint2*>(high) = h.bits;
  *reinterpret_cast<uint2*>(low) = l.bits;
}

// A row for so many warps that they can hold it in registers; what is longer than all warps of a
// block can hold is read again.
constexpr int kHeld = 8;                           // packs of four elements that a lane holds
constexpr std::int64_t kHeldOfWarp = 128 * kHeld;  // elements

__device__ void split_along(const SplitSource& s, unsigned block) {
  __shared__ std::uint32_t found[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, team = warp / s.warps;
  const int lane = static_cast<int>(threadIdx.x) % (32 * s.warps);
  const std::int64_t of_all = std::int64_t{block} * (kWarps / s.warps) + team;
  const bool is_row = of_all < s.rows * s.batch;
  const std::int64_t batch = is_row ? of_all / s.rows : 0, row = is_row ? of_all % s.rows : 0;
  const std::int64_t k_end = is_row ? s.k : 0, step = std::int64_t{128} * s.warps;
  const float* x = s.from.data + batch * s.from.batch_stride + row * s.from.leading;
  std::uint32_t largest = 0;
  const auto look_at = [&](const float4& v) {
    largest = max(largest, max(max(magnitude_bits(v.x), magnitude_bits(v.y)),
                               max(magnitude_bits(v.z), magnitude_bits(v.w))));
  };
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = load4(s, x, 4 * lane + i * step, k_end);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) look_at(held[i]);
  for (std::int64_t k = 4 * lane + kHeld * step; k < k_end; k += step)
    look_at(load4(s, x, k, k_end));
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (s.warps > 1) {
    if (threadIdx.x % 32 == 0) found[warp] = largest;
    __syncthreads();
    for (int i = 0; i < s.warps; ++i) largest = max(largest, found[team * s.warps + i]);
  }
  if (!is_row) return;
  if (lane == 0) s.scales[of_all] = largest;
  const Scaling scaling(largest);
  const std::int64_t plane = s.rows * s.padded_k;
  __half* high = s.parts + 2 * batch * plane + row * s.padded_k;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const std::int64_t k = 4 * lane + i * step;
    if (k < s.padded_k) store4(high + k, high + plane + k, held[i], scaling);
  }
  for (std::int64_t k = 4 * lane + kHeld * step; k < s.padded_k; k += step)
    store4(high + k, high + plane + k, load4(s, x, k, k_end), scaling);
}

// Which ways K runs in the two operands: each alone needs fewer registers than both.
enum class Ways { kAlong, kDown, kBoth };

template <Ways kWays>
__global__ void __launch_bounds__(kThreads)
    split_parts_kernel(Predecessors before, const SplitSources both) {
  before.wait();
  unsigned block;
  const SplitSource& s = source_of(both, block);
  if (kWays == Ways::kDown || (kWays == Ways::kBoth && s.from.is_down)) {
    split_down(s, block);
  } else {
    split_along(s, block);
  }
}

unsigned row_groups(const SplitSource& s) {
  return static_cast<unsigned>(ceil_div(s.rows, kTile)) * static_cast<unsigned>(s.batch);
}

// Puts the blocks of both operands behind each other; returns how many there are.
unsigned arrange(SplitSources& both, unsigned a_blocks, unsigned b_blocks) {
  both.a.first_block = 0;
  both.b.first_block = a_blocks;
  return a_blocks + b_blocks;
}

}  // namespace

cudaError_t split_operands(const SplitSource& a, const SplitSource& b, const LaunchStream& stream) {
  SplitSources both{a, b};
  for (SplitSource* s : {&both.a, &both.b}) {
    while (s->warps < kWarps && s->warps * kHeldOfWarp < s->k) s->warps *= 2;
  }
  const auto maxima_blocks = [](const SplitSource& s) {
    return s.from.is_down ? row_groups(s) * static_cast<unsigned>(s.chunks) : 0U;
  };
  const auto parts_blocks = [](const SplitSource& s) {
    if (s.from.is_down) return row_groups(s) * static_cast<unsigned>(s.padded_k / kTile);
    return static_cast<unsigned>(ceil_div(s.rows * s.batch, kWarps / s.warps));
  };
  if (const unsigned blocks = arrange(both, maxima_blocks(a), maxima_blocks(b)); blocks > 0) {
    const cudaError_t status = launch_kernel(stream, {blocks, kThreads}, split_maxima_kernel, both);
    if (status != cudaSuccess) return status;
  }
  auto* kernel = a.from.is_down != b.from.is_down ? split_parts_kernel<Ways::kBoth>
                 : a.from.is_down                 ? split_parts_kernel<Ways::kDown>
                                                  : split_parts_kernel<Ways::kAlong>;
  const unsigned blocks = arrange(both, parts_blocks(both.a), parts_blocks(both.b));
  return launch_kernel(stream, {blocks, kThreads}, kernel, both);
}

}  // namespace tracestep::cuda

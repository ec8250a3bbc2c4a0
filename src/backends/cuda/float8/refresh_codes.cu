// Checks the codes of weights before a step's products: whether adamw_codes left valid ones with a
// scale that fits; otherwise they are made again.
#include <algorithm>

#include "backends/cuda/float8/tiles.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"

namespace tracestep::cuda {
namespace {

using namespace float8;

constexpr std::size_t kParameterBytes = 32764;
constexpr int kCheckers = 4;  // blocks for each weight: most often they only look

struct Weight {
  const float* w;
  const float *last, *found;
  std::uint8_t *codes, *transposed;
  float *scale, *largest;  // each may be null: nobody reads it
  std::int32_t rows, columns, first_tile;
  std::int32_t in_place;  // whether the old codes are where the new ones shall be
};

struct Weights {
  static constexpr int kMost = 400;
  Weight at[kMost];
  float limit, room;
  std::uint32_t* maxima;  // the largest magnitude of each tile, as bits
  float* lasts;           // a copy of each weight's `last`, which may lie where `largest` does
};
static_assert(sizeof(Predecessors) + alignof(Weights) + sizeof(Weights) <= kParameterBytes);

// A source (tiles.cuh) that reads float32 weights and rounds them to bfloat16.
struct Rounded {
  using Element = BF16;
  static constexpr int kParts = 1, kBlocks = 2;
  const float* w;
  std::int64_t rows, columns;

  __device__ __forceinline__ void load(std::int64_t row, std::int64_t column,
                                       Pack<BF16, kSide> (&to)[1]) const {
    const auto* from = reinterpret_cast<const Pack<float, 4>*>(w + row * columns + column);
    const Pack<float, 4> low = from[0], high = from[1];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[0].at[j] = from_float<BF16>(low.at[j]);
      to[0].at[4 + j] = from_float<BF16>(high.at[j]);
    }
  }
};

__device__ __forceinline__ Codes codes_of_weight(const Weight& weight, float limit) {
  return {.codes = weight.codes,
          .transposed = weight.transposed,
          .rows = weight.rows,
          .columns = weight.columns,
          .leading = weight.rows,
          .limit = limit,
          .codes_in_packs = true,
          .transposed_in_packs = true};
}

// True if the update wrote this weight's codes, and with the scale that `last` gives.
__device__ __forceinline__ bool is_kept(const Weight& weight, float last) {
  const std::uint32_t before = __float_as_uint(weight.found[1]);
  return weight.in_place != 0 && before != 0 && before == __float_as_uint(last);
}

__device__ __forceinline__ int tiles_of(const Weight& weight) {
  return (weight.rows + kTile - 1) / kTile * ((weight.columns + kTile - 1) / kTile);
}

// Writes the codes of weights for which is_kept() is false, with the scale of the step before.
__global__ void __launch_bounds__(kThreads, Rounded::kBlocks)
    renewed_codes_kernel(Predecessors before, const __grid_constant__ Weights weights) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const Weight& weight = weights.at[blockIdx.x];
  const float last = *weight.last;
  if (blockIdx.y == 0 && threadIdx.x == 0) weights.lasts[blockIdx.x] = last;
  if (is_kept(weight, last)) return;
  const Rounded source{weight.w, weight.rows, weight.columns};
  const Codes to = codes_of_weight(weight, weights.limit);
  const float inverse = __fdiv_rn(weights.limit, reach_of(last, weights.room));
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles_of(weight);
       tile += static_cast<int>(gridDim.y)) {
    const std::uint32_t largest = block_max(write_tile<false>(source, to, tile, inverse), scratch);
    if (threadIdx.x == 0) weights.maxima[weight.first_tile + tile] = largest;
    __syncthreads();  // `scratch` has been read
  }
}

// Runs after renewed_codes_kernel: checks that each scale fits, or else writes the codes again.
__global__ void __launch_bounds__(kThreads, Rounded::kBlocks)
    checked_weights_kernel(Predecessors before, const __grid_constant__ Weights weights) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const Weight& weight = weights.at[blockIdx.x];
  const float last = weights.lasts[blockIdx.x], reach = reach_of(last, weights.room);
  const float now = is_kept(weight, last)
                        ? weight.found[0]
                        : largest_of(weights.maxima + weight.first_tile, tiles_of(weight), scratch);
  const bool fits = now <= reach && last <= weights.room * now;
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    if (weight.scale != nullptr) *weight.scale = __fdiv_rn(fits ? reach : now, weights.limit);
    if (weight.largest != nullptr) *weight.largest = now;
  }
  if (fits) return;
  const Rounded source{weight.w, weight.rows, weight.columns};
  const Codes to = codes_of_weight(weight, weights.limit);
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles_of(weight);
       tile += static_cast<int>(gridDim.y)) {
    write_tile<false>(source, to, tile, __fdiv_rn(weights.limit, now));
  }
}

std::int32_t tiles_of(const TensorRef& x) {
  return static_cast<std::int32_t>(quantize_tiles(x.shape[0], x.shape[1]));
}

// Gathers the operands and results of weight `index` of refresh_codes.
Weight weight_of(const KernelCall& call, std::size_t index, std::int32_t first_tile) {
  const TensorRef *from = &call.inputs[1 + 4 * index], *to = &call.outputs[4 * index];
  return {.w = from[0].as<const float>(),
          .last = from[1].as<const float>(),
          .found = call.inputs[0].as<const float>() + 2 * index,
          .codes = to[0].as<std::uint8_t>(),
          .transposed = to[1].as<std::uint8_t>(),
          .scale = to[2].as<float>(),
          .largest = to[3].as<float>(),
          .rows = static_cast<std::int32_t>(from->shape[0]),
          .columns = static_cast<std::int32_t>(from->shape[1]),
          .first_tile = first_tile,
          .in_place = from[2].data == to[0].data && from[3].data == to[1].data};
}

void refresh_codes(const KernelCall& call) {
  const std::size_t count = (call.inputs.size() - 1) / 4;
  auto* const workspace = reinterpret_cast<std::uint32_t*>(call.workspace.data());
  Weights weights{.at = {},
                  .limit = static_cast<float>(call.attrs.real("largest")),
                  .room = static_cast<float>(call.attrs.real("room")),
                  .maxima = workspace + count,
                  .lasts = reinterpret_cast<float*>(workspace)};
  std::int32_t tile = 0;
  for (std::size_t first = 0; first < count; first += Weights::kMost) {
    const std::size_t here = std::min<std::size_t>(count - first, Weights::kMost);
    for (std::size_t i = 0; i < here; ++i) {
      weights.at[i] = weight_of(call, first + i, tile);
      tile += tiles_of(call.inputs[1 + 4 * (first + i)]);
    }
    Grid grid{.blocks = static_cast<unsigned>(here), .threads = kThreads};
    grid.blocks_y = kCheckers;
    launch(call, grid, renewed_codes_kernel, weights);
    launch(call, grid, checked_weights_kernel, weights);
    weights.lasts += here;
  }
}

}  // namespace

void add_refresh_codes_kernel(KernelTable& table) {
  table.add("refresh_codes", refresh_codes);
}

}  // namespace tracestep::cuda

// How the products with SwiGLU as their epilogue are cut into tiles, what a thread block holds of
// one, and the warp that loads operands.
#pragma once

#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda::gated_product {

constexpr int kM = 128, kN = 128, kK = 64, kThreads = 3 * 128;
using Panel = Tile<64, 64>;  // results on their way to or from memory

struct GatedParameters {
  CUtensorMap a, b;             // x or dy; the weights
  CUtensorMap gate_up;          // written, and by the gradients read
  CUtensorMap result;           // h, or the gradients of gate_up
  int row_units, units;         // tiles, or clusters of them, from top to bottom, and all
  int blocks;                   // blocks of K
  int columns;                  // F
  bool keeps_gate_up, keeps_h;  // somebody reads them
};

template <bool kGradient>
struct GatedLayout {
  // Blocks of a cluster: their tiles lie below each other, and each loads half the weights of both.
  static constexpr int kCluster = kGradient ? 1 : 2;
  // The threads that store results together: for gradients a warpgroup, since panels of gate and up
  // are read first; for h a warp, which stores its rows without waiting for others.
  static constexpr int kTeam = kGradient ? 128 : 32;
  static constexpr int kTeamRows = kTeam / 2;
  static constexpr int kStages = kGradient ? 5 : 6;
  static constexpr int kPanels = kGradient ? 4 : 2;         // panels of a warpgroup
  static constexpr int kColumns = kGradient ? kN : kN / 2;  // columns of F in a tile
  using A = Tile<kM, kK>;
  using B = Tile<kGradient ? kK : kN, kGradient ? kN : kK>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes, kPanelsAt = kStages * kStageBytes,
                       kFull = kPanelsAt + 2 * kPanels * Panel::kBytes,
                       kEmpty = kFull + 8 * kStages, kRead = kEmpty + 8 * kStages,
                       kBytes = kRead + 8 * 4 + 1024;  // with room to align to 1024
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

struct GatedTile {
  int row, column;
};

// Returns the first row and column of a tile; eight rows of tiles go together, to stay in L2.
template <bool kGradient>
__device__ __forceinline__ GatedTile gated_tile(const GatedParameters& p, int unit) {
  using Layout = GatedLayout<kGradient>;
  constexpr int kTogether = 8 / Layout::kCluster;
  const int columns = p.units / p.row_units;
  const int band = unit / (kTogether * columns), first = band * kTogether;
  const int rows = ::min(kTogether, p.row_units - first), in_band = unit - first * columns;
  const int rank = Layout::kCluster > 1 ? cluster_rank() : 0;
  return {.row = ((first + in_band % rows) * Layout::kCluster + rank) * kM,
          .column = in_band / rows * Layout::kColumns};
}

template <bool kGradient>
__device__ __forceinline__ void load_weights(const GatedParameters& p, std::uint32_t target,
                                             std::uint32_t full, int k, int column) {
  if constexpr (kGradient) {
    for (int i = 0; i < kN / 64; ++i)
      load_box(target + i * kK * 128, &p.b, full, column + 64 * i, k, 0, 0);
  } else {  // the gates by the cluster's first block, what they gate by the other
    const int rank = cluster_rank();
    load_box_to_blocks(target + rank * kN / 2 * 128, &p.b, full, k, rank * p.columns + column, 3);
  }
}

template <bool kGradient>
__device__ __forceinline__ void produce_operands(const GatedParameters& p, std::uint32_t shared) {
  using Layout = GatedLayout<kGradient>;
  Ring<Layout::kStages> ring;
  const int step = static_cast<int>(gridDim.x) / Layout::kCluster;
  for (int unit = static_cast<int>(blockIdx.x) / Layout::kCluster; unit < p.units; unit += step) {
    const GatedTile tile = gated_tile<kGradient>(p, unit);
#pragma unroll 1
    for (int block = 0; block < p.blocks; ++block) {
      const std::uint32_t full = shared + Layout::kFull + 8 * ring.stage;
      const std::uint32_t stage = shared + ring.stage * Layout::kStageBytes;
      barrier_wait(shared + Layout::kEmpty + 8 * ring.stage, ring.parity ^ 1);
      barrier_arrive_expect(full, Layout::kStageBytes);
      load_box(stage, &p.a, full, block * kK, tile.row, 0, 0);
      load_weights<kGradient>(p, stage + Layout::A::kBytes, full, block * kK, tile.column);
      ring.advance();
    }
  }
}

}  // namespace tracestep::cuda::gated_product

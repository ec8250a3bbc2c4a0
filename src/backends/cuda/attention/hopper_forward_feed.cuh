// What surrounds the forward kernel's consumers: the switches it is made of, how shared memory is
// divided, the order of tiles, and the thread that loads them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// What a forward kernel is made of. The ladder changes one switch at a time.
template <class TypeOf, int kD_, int kGroups_, int kN_, bool kCausal_>
struct ForwardTraits {
  using T = TypeOf;                         // __nv_bfloat16 or __half
  static constexpr int kD = kD_;            // head width
  static constexpr int kGroups = kGroups_;  // consuming warpgroups, 64 query rows each
  static constexpr int kN = kN_;            // keys of a block; causal: a multiple of 64
  static constexpr bool kCausal = kCausal_;
  static constexpr int kStages = 2;          // blocks of K and V in flight
  static constexpr int kQStages = 2;         // tiles of Q: the next is loaded early
  static constexpr bool kOverlap = true;     // next scores under this softmax
  static constexpr bool kTurns = true;       // warpgroups take turns at the matrix units
  static constexpr float kThreshold = 8.0F;  // growth of the maximum (log2) that rescales O
};

struct ForwardParameters {
  CUtensorMap q, k, v, o;
  float* lse;    // or null
  int* counter;  // tiles handed out so far; null: tile, tile + gridDim.x, ...
  int queries, keys, heads;
  int offset;  // causal: query i sees keys 0 .. i + offset
  bool has_o;
  int row_tiles, tiles;  // of a head; of all
  float scale_log2;      // scale * log2 e
};

template <class Traits>
struct ForwardLayout {
  static constexpr int kM = 64 * Traits::kGroups, kThreads = 128 * (Traits::kGroups + 1);
  using Q = Tile<kM, Traits::kD>;
  using K = Tile<Traits::kN, Traits::kD>;  // also V
  using O = Tile<64, Traits::kD>;          // of one warpgroup
  static constexpr int kQ = 0, kK = Traits::kQStages * Q::kBytes,
                       kV = kK + Traits::kStages * K::kBytes, kO = kV + Traits::kStages * K::kBytes,
                       kEnd = kO + Traits::kGroups * O::kBytes;
  // Barriers: 8 bytes each.
  static constexpr int kQFull = kEnd, kQEmpty = kQFull + 8 * Traits::kQStages,
                       kTileFull = kQEmpty + 8 * Traits::kQStages, kTileEmpty = kTileFull + 16,
                       kKFull = kTileEmpty + 16, kKEmpty = kKFull + 8 * Traits::kStages,
                       kVFull = kKEmpty + 8 * Traits::kStages,
                       kVEmpty = kVFull + 8 * Traits::kStages,
                       kTileIndex = kVEmpty + 8 * Traits::kStages;
  static constexpr int kBytes = kTileIndex + 8 + 1024;  // with room to align to 1024
  // Every tile starts at a multiple of its swizzle's pattern, eight rows.
  static_assert(Q::kBytes % (8 * Q::kSwizzle) == 0 && K::kBytes % (8 * Q::kSwizzle) == 0);
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// Which tile: tiles of a head come one after the other, those with most keys first.
struct ForwardTile {
  int row, head, batch, head_of_all;
  __device__ __forceinline__ ForwardTile(const ForwardParameters& p, int index, int rows) {
    head_of_all = index / p.row_tiles;
    row = (p.row_tiles - 1 - index % p.row_tiles) * rows;
    batch = head_of_all / p.heads;
    head = head_of_all % p.heads;
  }
};

// Blocks of keys that rows up to `last_row` see; at least one, were it all masked.
template <class Traits>
__device__ __forceinline__ int key_blocks(const ForwardParameters& p, int last_row) {
  const int keys = Traits::kCausal ? min(p.keys, last_row + 1 + p.offset) : p.keys;
  return max(1, (keys + Traits::kN - 1) / Traits::kN);
}

// --- the producer: one thread --------------------------------------------------------------------
template <class Traits>
__device__ __forceinline__ void produce_forward(const ForwardParameters& p, std::uint32_t shared,
                                                int* tile_slots) {
  using Layout = ForwardLayout<Traits>;
  using K = typename Layout::K;
  Ring<Traits::kStages> ring_k, ring_v;
  Ring<2> ring_tile;
  Ring<Traits::kQStages> ring_q;
  const auto load_k = [&](const ForwardTile& tile, int block) {
    const std::uint32_t full = shared + Layout::kKFull + 8 * ring_k.stage;
    barrier_wait(shared + Layout::kKEmpty + 8 * ring_k.stage, ring_k.parity ^ 1);
    barrier_arrive_expect(full, K::kBytes);
    load_box(shared + Layout::kK + ring_k.stage * K::kBytes, &p.k, full, block * Traits::kN,
             tile.head, tile.batch);
    ring_k.advance();
  };
  const auto load_v = [&](const ForwardTile& tile, int block) {
    const std::uint32_t full = shared + Layout::kVFull + 8 * ring_v.stage;
    barrier_wait(shared + Layout::kVEmpty + 8 * ring_v.stage, ring_v.parity ^ 1);
    barrier_arrive_expect(full, K::kBytes);
    load_box(shared + Layout::kV + ring_v.stage * K::kBytes, &p.v, full, block * Traits::kN,
             tile.head, tile.batch);
    ring_v.advance();
  };
  int index = static_cast<int>(blockIdx.x);
  while (true) {
    // Tell the consumers which tile is next; -1: none.
    barrier_wait(shared + Layout::kTileEmpty + 8 * ring_tile.stage, ring_tile.parity ^ 1);
    tile_slots[ring_tile.stage] = index < p.tiles ? index : -1;
    barrier_arrive(shared + Layout::kTileFull + 8 * ring_tile.stage);
    ring_tile.advance();
    if (index >= p.tiles) return;
    const ForwardTile tile(p, index, Layout::kM);
    index = p.counter != nullptr ? atomicAdd(p.counter, 1) + static_cast<int>(gridDim.x)
                                 : index + static_cast<int>(gridDim.x);
    const int blocks = key_blocks<Traits>(p, min(tile.row + Layout::kM, p.queries) - 1);
    const std::uint32_t q_full = shared + Layout::kQFull + 8 * ring_q.stage;
    barrier_wait(shared + Layout::kQEmpty + 8 * ring_q.stage, ring_q.parity ^ 1);
    barrier_arrive_expect(q_full, Layout::Q::kBytes);
    load_box(shared + Layout::kQ + ring_q.stage * Layout::Q::kBytes, &p.q, q_full, tile.row,
             tile.head, tile.batch);
    ring_q.advance();
    load_k(tile, blocks - 1);
#pragma unroll 1  // few registers have to do
    for (int block = blocks - 1; block > 0; --block) {
      load_k(tile, block - 1);
      load_v(tile, block);
    }
    load_v(tile, 0);
  }
}

}  // namespace tracestep::cuda

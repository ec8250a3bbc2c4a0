// Everything around the forward kernel's consumers: the switches it is made of, how shared memory
// is divided, the order of tiles, and the thread that loads them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/document_sight.cuh"
#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

// Compile-time switches of a forward kernel; bench/kernels/attention shows what they are worth.
template <class TypeOf, int kD_, int kGroups_, int kN_, bool kCausal_>
struct ForwardTraits {
  using T = TypeOf;                         // __nv_bfloat16 or __half
  static constexpr int kD = kD_;            // head width
  static constexpr int kGroups = kGroups_;  // warpgroups of a tile, 64 query rows each
  static constexpr int kN = kN_;            // keys of a block
  static constexpr bool kCausal = kCausal_;
  static constexpr int kTeams = 1;             // tiles at a time, each with kGroups warpgroups
  static constexpr int kStages = 2;            // blocks of K and V in flight
  static constexpr int kQStages = 2;           // tiles of Q: the next is loaded early
  static constexpr bool kOInQ = false;         // O is staged where its Q lay
  static constexpr bool kOverlap = true;       // next scores under this softmax
  static constexpr bool kTurns = true;         // warpgroups take turns at the matrix units
  static constexpr float kThreshold = 8.0F;    // growth of the maximum (log2) that rescales O
  static constexpr bool kSections = kCausal_;  // the longest tiles of several heads come first
  static constexpr bool kWindowed = false;     // causal, and a query sees the last keys alone
  static constexpr bool kCapped = false;       // scores, see hopper_cap.cuh
  static constexpr bool kDivided = false;      // keys, among blocks: hopper_forward_parts.cuh
};

// Adds a window of keys to the traits `Traits` of a kernel.
template <class Traits>
struct Windowed : Traits {
  static constexpr bool kWindowed = true;
};

// The window of windowed kernels that hides no key; sums with it do not overflow.
constexpr int kEveryKey = 1 << 30;

struct ForwardParameters {
  CUtensorMap q, k, v, o;
  float* lse;    // or null
  int* counter;  // tiles handed out after each team's first; null: a team takes every teams-th
  int queries, keys, heads;
  int group;                 // heads of q that share one of k and v
  int offset;                // causal: query i sees keys 0 .. i + offset
  int window;                // windowed: the last of these that a query sees; kEveryKey: no limit
  DocumentBounds documents;  // windowed, not capped
  bool has_o;
  int row_tiles, tiles;          // tiles of one head; of all heads
  int all_heads, section_heads;  // heads of all batches; heads of a section, see ForwardTile
  int parts;                     // divided: blocks of a cluster, which divide a tile's keys
  int width;                     // divided: of the head
  void* o_data;                  // divided: o, or null
  AttentionStrides o_strides;    // strides of o_data
  float to_tangent;              // capped: scale / cap
  float scale_log2;              // scale * log2 e; capped: cap * log2 e
};

template <class Traits>
struct ForwardLayout {
  static constexpr int kM = 64 * Traits::kGroups;
  static constexpr int kThreads = 128 * (1 + Traits::kTeams * Traits::kGroups);
  using Q = Tile<kM, Traits::kD>;
  using K = Tile<Traits::kN, Traits::kD>;  // keys of a block; values, too
  using O = Tile<64, Traits::kD>;          // results of one warpgroup
  static constexpr int kQ = 0, kK = Traits::kQStages * Q::kBytes,
                       kV = kK + Traits::kStages * K::kBytes, kO = kV + Traits::kStages * K::kBytes,
                       kEnd = kO + (Traits::kOInQ ? 0 : Traits::kGroups * O::kBytes);
  // The offsets of barriers in shared memory, 8 bytes each.
  static constexpr int kQFull = kEnd, kQEmpty = kQFull + 8 * Traits::kQStages,
                       kKFull = kQEmpty + 8 * Traits::kQStages,
                       kKEmpty = kKFull + 8 * Traits::kStages,
                       kVFull = kKEmpty + 8 * Traits::kStages,
                       kVEmpty = kVFull + 8 * Traits::kStages,
                       kTiles = kVEmpty + 8 * Traits::kStages;  // which tile each Q is of
  static constexpr int kTeamBytes = (kTiles + 16 * Traits::kQStages + 1023) / 1024 * 1024;
  static constexpr int kBytes = Traits::kTeams * kTeamBytes + 1024;  // with room to align to 1024
  // Every tile starts at a multiple of its swizzle's pattern, eight rows.
  static_assert(Q::kBytes % (8 * Q::kSwizzle) == 0 && K::kBytes % (8 * Q::kSwizzle) == 0);
  static_assert(kTiles % 16 == 0 && !(Traits::kOInQ && Traits::kQStages > 1));
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// A tile of queries of one head. Tiles of a section of heads come one after the other, those with
// most keys first, so that short ones remain for the end.
struct ForwardTile {
  int row, head, batch, head_of_all;  // row < 0: no tile

  __device__ __forceinline__ void store(std::uint32_t address) const {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(row), "r"(head),
                 "r"(batch), "r"(head_of_all)
                 : "memory");
  }
  static __device__ __forceinline__ ForwardTile load(std::uint32_t address) {
    ForwardTile tile;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile.row), "=r"(tile.head), "=r"(tile.batch), "=r"(tile.head_of_all)
                 : "r"(address)
                 : "memory");
    return tile;
  }
};
__device__ __forceinline__ ForwardTile forward_tile(const ForwardParameters& p, int index,
                                                    int rows) {
  if (index >= p.tiles) return {.row = -1};
  const int section_tiles = p.section_heads * p.row_tiles;
  const int section = index / section_tiles, first_head = section * p.section_heads;
  const int heads = min(p.section_heads, p.all_heads - first_head);
  const int place = index - section * section_tiles, step = place / heads;
  const int head_of_all = first_head + place - step * heads;
  return {.row = (p.row_tiles - 1 - step) * rows,
          .head = head_of_all % p.heads,
          .batch = head_of_all / p.heads,
          .head_of_all = head_of_all};
}

// Returns how many blocks of keys rows up to `last_row` see: at least one, even if all are masked.
template <class Traits>
__device__ __forceinline__ int key_blocks(const ForwardParameters& p, int last_row) {
  const int keys = Traits::kCausal ? min(p.keys, last_row + 1 + p.offset) : p.keys;
  return max(1, (keys + Traits::kN - 1) / Traits::kN);
}

// Returns the first block of keys that rows of the tile see; `blocks`: the result of key_blocks().
template <class Traits>
__device__ __forceinline__ int first_key_block(const ForwardParameters& p, const ForwardTile& tile,
                                               int blocks) {
  if (!Traits::kWindowed) return 0;
  const auto documents = document_sight<Traits>(p.documents, tile.batch, p.queries);
  const int first = documents.first_key(tile.row, tile.row + p.offset - p.window + 1);
  return min(blocks - 1, max(0, first) / Traits::kN);
}

// key_part(): how many of a tile's blocks of keys, counted from the last one, come before the first
// that this thread block takes; key_distance(): the distance from one that it takes to the next.
template <class Traits>
__device__ __forceinline__ int key_part() {
  return Traits::kDivided ? cluster_rank() : 0;
}
template <class Traits>
__device__ __forceinline__ int key_distance(const ForwardParameters& p) {
  return Traits::kDivided ? p.parts : 1;
}

// --- the producer, one thread of a team: loads Q, K and V of tiles until there are no more -------
template <class Traits>
__device__ __forceinline__ void produce_forward(const ForwardParameters& p, std::uint32_t shared,
                                                int team) {
  using Layout = ForwardLayout<Traits>;
  using K = typename Layout::K;
  Ring<Traits::kStages> ring_k, ring_v;
  Ring<Traits::kQStages> ring_q;
  const auto load_k = [&](const ForwardTile& tile, int key_head, int block) {
    const std::uint32_t full = shared + Layout::kKFull + 8 * ring_k.stage;
    barrier_wait(shared + Layout::kKEmpty + 8 * ring_k.stage, ring_k.parity ^ 1);
    barrier_arrive_expect(full, K::kBytes);
    load_tile<K>(shared + Layout::kK + ring_k.stage * K::kBytes, &p.k, full, block * Traits::kN,
                 key_head, tile.batch);
    ring_k.advance();
  };
  const auto load_v = [&](const ForwardTile& tile, int key_head, int block) {
    const std::uint32_t full = shared + Layout::kVFull + 8 * ring_v.stage;
    barrier_wait(shared + Layout::kVEmpty + 8 * ring_v.stage, ring_v.parity ^ 1);
    barrier_arrive_expect(full, K::kBytes);
    load_tile<K>(shared + Layout::kV + ring_v.stage * K::kBytes, &p.v, full, block * Traits::kN,
                 key_head, tile.batch);
    ring_v.advance();
  };
  const int teams = static_cast<int>(gridDim.x) * Traits::kTeams;  // the teams of all blocks
  int index = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);
  if (Traits::kDivided) index /= p.parts;
  while (true) {
    const ForwardTile tile = forward_tile(p, index, Layout::kM);
    const std::uint32_t q_full = shared + Layout::kQFull + 8 * ring_q.stage;
    barrier_wait(shared + Layout::kQEmpty + 8 * ring_q.stage, ring_q.parity ^ 1);
    tile.store(shared + Layout::kTiles + 16 * ring_q.stage);
    if (tile.row < 0) {
      barrier_arrive(q_full);
      return;
    }
    barrier_arrive_expect(q_full, Layout::Q::kBytes);
    load_tile<typename Layout::Q>(shared + Layout::kQ + ring_q.stage * Layout::Q::kBytes, &p.q,
                                  q_full, tile.row, tile.head, tile.batch);
    ring_q.advance();
    index = (p.counter != nullptr ? atomicAdd(p.counter, 1) : index) + teams;
    const int blocks = key_blocks<Traits>(p, min(tile.row + Layout::kM, p.queries) - 1);
    const int key_head = tile.head / p.group;
    const int begin = first_key_block<Traits>(p, tile, blocks);
    const int distance = key_distance<Traits>(p);
    int block = blocks - 1 - key_part<Traits>();
    if (Traits::kDivided && block < begin) return;
    load_k(tile, key_head, block);
#pragma unroll 1  // few registers have to do
    for (; block - distance >= begin; block -= distance) {
      load_k(tile, key_head, block - distance);
      load_v(tile, key_head, block);
    }
    load_v(tile, key_head, block);
    if (Traits::kDivided) return;  // one tile a cluster
  }
}

}  // namespace tracestep::cuda

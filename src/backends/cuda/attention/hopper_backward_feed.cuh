// What surrounds the backward kernel's consumers: the switches it is made of, how shared memory is
// divided, which keys a block takes, the thread that loads and the threads that add up dQ.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"

namespace tracestep::cuda {

template <class TypeOf, int kD_, int kM_, bool kCausal_>
struct BackwardTraits {
  using T = TypeOf;               // __nv_bfloat16 or __half
  static constexpr int kD = kD_;  // head width
  static constexpr int kM = kM_;  // queries of a block: 64 or 128
  static constexpr int kN = 128;  // keys of a block
  static constexpr bool kCausal = kCausal_;
  static constexpr bool kGrouped = false;  // several heads of queries share one of keys
  static constexpr int kQStages = 3;       // blocks of Q in flight
  static constexpr int kDOStages = 2;      // of dO
  static constexpr bool kAhead = true;     // next scores under this block's dK and dQ
  // kLateValues: P is rounded together with dS, and only then dV is multiplied. kEarlyKeys: dK is
  // complete before the next block begins. Both save registers for the accumulators, and are
  // faster even where registers suffice.
  static constexpr bool kLateValues = true, kEarlyKeys = true;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
};

struct BackwardParameters {
  CUtensorMap q, k, v, d_o, dk, dv;
  const float *lse2, *delta;  // [batch * heads][padded_queries]; LSE in log2
  float* dq_sums;             // [batch * heads][padded_queries / 64][D / 8][128][4]
  int* turns;                 // [batch * heads][blocks of queries][2], zeros; null: in any order
  int queries, keys, key_heads, padded_queries, key_blocks;
  int group;  // heads of queries that share one of keys
  int all_key_heads,
      section_heads;  // of all batches; those whose blocks are mixed, see BackwardTile
  int offset;         // causal: query i sees keys 0 .. i + offset
  bool has_dk, has_dv;
  float scale, scale_log2;
};

template <class Traits>
struct BackwardLayout {
  static constexpr int kD = Traits::kD, kM = Traits::kM, kN = Traits::kN, kThreads = 384;
  using Q = Tile<kM, kD>;    // also dO
  using K = Tile<kN, kD>;    // also V
  using Out = Tile<64, kD>;  // dK or dV of a warpgroup
  using DS = Tile<kN, kM>;   // [key][query]
  // dQ: with 128 queries a warpgroup takes 64 of them, with 64 it takes kQColumns of the columns,
  // the second one from D - kQColumns on; what the first also has (kQShared) it leaves out.
  static constexpr int kQColumns = kM == 128 ? kD : kD == 128 ? 64 : kD == 96 ? 64 : 48;
  static constexpr int kQFirst = kM == 128 ? 0 : kD - kQColumns;
  static constexpr int kQShared = kM == 128 ? 0 : 2 * kQColumns - kD;
  static constexpr int kQBytes = kQColumns * 64 * 4;
  static constexpr int kRowBytes = kM * 4;  // LSE or delta of a block

  static constexpr int kK = 0, kV = K::kBytes, kQ = kV + K::kBytes,
                       kDO = kQ + Traits::kQStages * Q::kBytes,
                       kDS = kDO + Traits::kDOStages * Q::kBytes, kDQ = kDS + 2 * DS::kBytes,
                       kLse = kDQ + 2 * kQBytes, kDelta = kLse + Traits::kQStages * kRowBytes,
                       kEnd = kDelta + Traits::kDOStages * kRowBytes;
  static constexpr int kKFull = kEnd, kVFull = kKFull + 8, kQFull = kVFull + 8,
                       kQEmpty = kQFull + 8 * Traits::kQStages,
                       kDOFull = kQEmpty + 8 * Traits::kQStages,
                       kDOEmpty = kDOFull + 8 * Traits::kDOStages,
                       kDQFull = kDOEmpty + 8 * Traits::kDOStages, kDQEmpty = kDQFull + 16;
  static constexpr int kBytes = kDQEmpty + 16 + 1024;
  static_assert(Q::kBytes % 1024 == 0 && K::kBytes % 1024 == 0 && DS::kBytes % 1024 == 0 &&
                kQBytes % 1024 == 0);
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// Which keys, and which blocks of queries see them.
template <class Traits>
struct BackwardTile {
  int block, first_key, head, batch, head_of_all, begin, end;  // heads: of keys
  __device__ __forceinline__ explicit BackwardTile(const BackwardParameters& p) {
    const int x = static_cast<int>(blockIdx.x);
    if constexpr (Traits::kGrouped)
      take_from_section(p, x);
    else
      take_from_head(p, x);
    first_key = block * Traits::kN;
    head = head_of_all % p.key_heads;
    batch = head_of_all / p.key_heads;
    end = (p.queries + Traits::kM - 1) / Traits::kM;
    begin = Traits::kCausal ? min(end, max(0, first_key - p.offset) / Traits::kM) : 0;
  }
  // How many blocks of keys add to dQ of a block of queries before this one does.
  __device__ __forceinline__ int turn(int query_block, const BackwardParameters& p) const {
    if (!Traits::kCausal || Traits::kGrouped) return block;
    const int last = (query_block * Traits::kM + Traits::kM - 1 + p.offset) / Traits::kN;
    return min(last, p.key_blocks - 1) - block;
  }

 private:
  // One head after the other. Causal: the first keys are seen by most queries and go first. In
  // ordered mode a block waits for that of the next keys, so there the last keys go first.
  __device__ __forceinline__ void take_from_head(const BackwardParameters& p, int x) {
    const int place = x % p.key_blocks;
    block = Traits::kCausal && p.turns != nullptr ? p.key_blocks - 1 - place : place;
    head_of_all = x / p.key_blocks;
  }
  // The blocks of a section of heads come one after the other, those that most queries see first:
  // where heads share keys they are long and few, and a long one must not be the last. In ordered
  // mode a block waits for that of the keys before.
  __device__ __forceinline__ void take_from_section(const BackwardParameters& p, int x) {
    const int section_blocks = p.section_heads * p.key_blocks;
    const int section = x / section_blocks, first_head = section * p.section_heads;
    const int heads = min(p.section_heads, p.all_key_heads - first_head);
    const int place = x - section * section_blocks;
    block = place / heads;
    head_of_all = first_head + place - block * heads;
  }
};

// The order in which blocks of queries meet a block of keys; the producer, the consumers and the
// threads that add up dQ follow it. Heads that share keys take turns, from the last block on: so
// all blocks of keys begin at the same queries, and in ordered mode, where the first keys go first,
// follow each other at the distance of one addition.
template <class Traits>
struct BackwardWalk {
  int block, member = 0;  // of the heads that share the keys
  __device__ __forceinline__ explicit BackwardWalk(const BackwardTile<Traits>& tile)
      : block(Traits::kGrouped ? tile.end - 1 : tile.begin) {}
  __device__ __forceinline__ bool is_over(const BackwardTile<Traits>& tile) const {
    return Traits::kGrouped ? block < tile.begin : block >= tile.end;
  }
  __device__ __forceinline__ void advance(const BackwardParameters& p) {
    if constexpr (Traits::kGrouped) {
      if (++member < p.group) return;
      member = 0;
      --block;
    } else {
      ++block;
    }
  }
  // The head of queries whose turn it is, of those that follow the head of keys `head`.
  __device__ __forceinline__ int query_head(int head, const BackwardParameters& p) const {
    return Traits::kGrouped ? head * p.group + member : head;
  }
  static __device__ __forceinline__ int steps(const BackwardTile<Traits>& tile,
                                              const BackwardParameters& p) {
    return (tile.end - tile.begin) * (Traits::kGrouped ? p.group : 1);
  }
};

// --- producer: one thread ------------------------------------------------------------------------
template <class Traits>
__device__ __forceinline__ void produce_backward(const BackwardParameters& p,
                                                 std::uint32_t shared) {
  using Layout = BackwardLayout<Traits>;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  const BackwardTile<Traits> tile(p);
  if (tile.begin == tile.end) return;
  Ring<Traits::kQStages> ring_q;
  Ring<Traits::kDOStages> ring_do;
  barrier_arrive_expect(shared + Layout::kKFull, K::kBytes);
  load_box(shared + Layout::kK, &p.k, shared + Layout::kKFull, tile.first_key, tile.head,
           tile.batch);
  barrier_arrive_expect(shared + Layout::kVFull, K::kBytes);
  load_box(shared + Layout::kV, &p.v, shared + Layout::kVFull, tile.first_key, tile.head,
           tile.batch);
#pragma unroll 1  // 24 registers have to do
  for (BackwardWalk<Traits> walk(tile); !walk.is_over(tile); walk.advance(p)) {
    const int row = walk.block * Traits::kM, head = walk.query_head(tile.head, p);
    const std::int64_t place =
        std::int64_t{walk.query_head(tile.head_of_all, p)} * p.padded_queries + row;
    barrier_wait(shared + Layout::kQEmpty + 8 * ring_q.stage, ring_q.parity ^ 1);
    const std::uint32_t q_full = shared + Layout::kQFull + 8 * ring_q.stage;
    barrier_arrive_expect(q_full, Q::kBytes + Layout::kRowBytes);
    load_box(shared + Layout::kQ + ring_q.stage * Q::kBytes, &p.q, q_full, row, head, tile.batch);
    load_bytes(shared + Layout::kLse + ring_q.stage * Layout::kRowBytes, p.lse2 + place,
               Layout::kRowBytes, q_full);
    ring_q.advance();
    barrier_wait(shared + Layout::kDOEmpty + 8 * ring_do.stage, ring_do.parity ^ 1);
    const std::uint32_t do_full = shared + Layout::kDOFull + 8 * ring_do.stage;
    barrier_arrive_expect(do_full, Q::kBytes + Layout::kRowBytes);
    load_box(shared + Layout::kDO + ring_do.stage * Q::kBytes, &p.d_o, do_full, row, head,
             tile.batch);
    load_bytes(shared + Layout::kDelta + ring_do.stage * Layout::kRowBytes, p.delta + place,
               Layout::kRowBytes, do_full);
    ring_do.advance();
  }
}

// --- one thread adds a warpgroup's dQ to the sums ------------------------------------------------
__device__ __forceinline__ int load_acquire(const int* address) {
  int x;
  asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(int* address) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(address) : "memory");
}

template <class Traits>
__device__ __forceinline__ void drain_queries(const BackwardParameters& p, std::uint32_t shared,
                                              int group) {
  using Layout = BackwardLayout<Traits>;
  constexpr int kD = Traits::kD, kM = Traits::kM;
  const BackwardTile<Traits> tile(p);
  const int left_out = group == 1 ? Layout::kQShared * 64 : 0;  // floats
  const int bytes = Layout::kQBytes - 4 * left_out;
  const std::uint32_t source = shared + Layout::kDQ + group * Layout::kQBytes + 4 * left_out;
  // Of this warpgroup's share of a block of queries.
  const int first = kM == 128 ? group * 64 * kD : Layout::kQFirst * group * 64 + left_out;
  std::uint32_t parity = 0;
  for (BackwardWalk<Traits> walk(tile); !walk.is_over(tile); walk.advance(p)) {
    const std::int64_t head = walk.query_head(tile.head_of_all, p);
    int* turn = p.turns;
    if (turn != nullptr) {
      turn += (head * tile.end + walk.block) * 2 + group;
      while (load_acquire(turn) != tile.turn(walk.block, p)) {
      }
    }
    barrier_wait(shared + Layout::kDQFull + 8 * group, parity);
    parity ^= 1;
    add_floats(p.dq_sums + (head * p.padded_queries + walk.block * kM) * kD + first, source, bytes);
    bulk_commit();
    bulk_wait_read<0>();
    barrier_arrive(shared + Layout::kDQEmpty + 8 * group);
    if (turn != nullptr) {
      bulk_wait<0>();
      __threadfence();
      add_release(turn);
    }
  }
  bulk_wait<0>();
}

}  // namespace tracestep::cuda

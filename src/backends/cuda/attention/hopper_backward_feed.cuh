// Everything around the backward kernel's consumers: the switches it is made of, how shared memory
// is divided, which keys a block takes, the thread that loads and the threads that add up dQ.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/document_sight.cuh"
#include "backends/cuda/attention/hopper_forward_feed.cuh"
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
  static constexpr bool kWindowed = false;   // causal, and a query sees the last keys alone
  static constexpr bool kCapped = false;     // scores, see hopper_cap.cuh
  static constexpr bool kDocuments = false;  // rows hold several documents, see Documented
  // True if several heads of q share a head of k and v, or several blocks divide the queries.
  static constexpr bool kGrouped = false;
  static constexpr int kQStages = 3;    // blocks of Q in flight
  static constexpr int kDOStages = 2;   // blocks of dO in flight
  static constexpr bool kAhead = true;  // next scores under this block's dK and dQ
  // kLateValues: P is rounded together with dS, and only then dV is multiplied. kEarlyKeys: dK is
  // complete before the next block begins. Both save registers for the accumulators, and are
  // faster even where registers suffice.
  static constexpr bool kLateValues = true, kEarlyKeys = true;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
};

// Adds masks by document to a causal kernel. The ends of the documents of a block's keys lie in
// shared memory, as no registers are left for them.
template <class Traits>
struct Documented : Windowed<Traits> {
  static constexpr bool kDocuments = true;
};

struct BackwardParameters {
  CUtensorMap q, k, v, d_o, dk, dv;
  const float *lse2, *delta;  // [batch * heads][padded_queries]; LSE in log2
  float* dq_sums;             // [batch * heads][padded_queries / 64][D / 8][128][4]
  int* turns;                 // [batch * heads][blocks of queries], zeros; null: in any order
  int queries, keys, key_heads, padded_queries, key_blocks;
  int group;          // heads of queries that share one of keys
  int all_key_heads;  // heads of keys in all batches
  int parts;          // grouped: blocks of a cluster, which divide the queries of their keys
  int section_heads;  // heads of a section, whose blocks are mixed, see BackwardTile
  int round;          // blocks of keys that walk one way, see BackwardOrder and BackwardWalk
  int window;         // windowed: the keys that a query sees, up to i + offset
  int offset;         // causal: query i sees keys 0 .. i + offset
  bool has_dk, has_dv;
  float scale;
  float to_tangent;          // capped: scale / cap
  float scale_log2;          // scale * log2 e; capped: cap * log2 e
  DocumentBounds documents;  // null pointers: no documents
};

template <class Traits>
struct BackwardLayout {
  static constexpr int kD = Traits::kD, kM = Traits::kM, kN = Traits::kN, kThreads = 384;
  using Q = Tile<kM, kD>;    // queries of a block; dO, too
  using K = Tile<kN, kD>;    // keys of a block; values, too
  using Out = Tile<64, kD>;  // dK or dV of a warpgroup
  using DS = Tile<kN, kM>;   // [key][query]
  // How two warpgroups divide dQ: of 128 queries each takes 64; of 64 each takes kQColumns columns,
  // the second from D - kQColumns on, and it leaves out the kQShared that the first has, too.
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
                       kDQFull = kDOEmpty + 8 * Traits::kDOStages, kDQEmpty = kDQFull + 32;
  static constexpr int kDocumentEnds = kDQEmpty + 16;  // see load_document_ends()
  static constexpr int kBytes = kDocumentEnds + (Traits::kDocuments ? 4 * kN : 0) + 1024;
  // Where a cluster sums dK and dV: float32 fragments of both warpgroups, in place of K, V, Q, dO.
  static constexpr int kPart = kK, kPartBytes = kN * kD * 4;
  static_assert(!Traits::kGrouped || kPart + 2 * kPartBytes <= kDS);
  static_assert(Q::kBytes % 1024 == 0 && K::kBytes % 1024 == 0 && DS::kBytes % 1024 == 0 &&
                kQBytes % 1024 == 0);
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// The keys of a thread block and the blocks of queries that see them, [begin, end), every parts-th.
template <class Traits>
struct BackwardTile {
  int block, first_key, head, batch, head_of_all, begin, end;  // head, head_of_all: heads of keys
  int blocks_of_head;                                          // blocks of queries in a head
  int part = 0;
  bool is_descending = Traits::kGrouped;  // see BackwardWalk
  __device__ __forceinline__ explicit BackwardTile(const BackwardParameters& p) {
    const int x = static_cast<int>(blockIdx.x);
    if constexpr (Traits::kGrouped) {
      part = x % p.parts;
      take_from_section(p, x / p.parts);
    } else {
      take_from_head(p, x);
    }
    first_key = block * Traits::kN;
    head = head_of_all % p.key_heads;
    batch = head_of_all / p.key_heads;
    blocks_of_head = (p.queries + Traits::kM - 1) / Traits::kM;
    end = blocks_of_head;
    if (Traits::kWindowed) {
      const int last_key = first_key + Traits::kN - 1;
      int unseen = last_key + p.window - p.offset;  // the first such query
      if constexpr (Traits::kDocuments) unseen = documents(p).end_query(last_key, unseen);
      end = min(end, (max(0, unseen) + Traits::kM - 1) / Traits::kM);
    }
    begin = Traits::kCausal ? min(end, max(0, first_key - p.offset) / Traits::kM) : 0;
  }
  // Returns how many blocks of keys add to dQ of the queries in `query_block` before this one does.
  __device__ __forceinline__ int turn(int query_block, const BackwardParameters& p) const {
    if (Traits::kWindowed) {
      const int query = query_block * Traits::kM;
      int seen = query + p.offset - p.window + 1;  // the first such key
      if constexpr (Traits::kDocuments) seen = documents(p).first_key(query, seen);
      return block - max(0, seen) / Traits::kN;
    }
    if (!Traits::kCausal || Traits::kGrouped) return block;
    const int last = (query_block * Traits::kM + Traits::kM - 1 + p.offset) / Traits::kN;
    return min(last, p.key_blocks - 1) - block;
  }
  __device__ __forceinline__ DocumentSight documents(const BackwardParameters& p) const {
    return {p.documents, batch, p.queries};
  }

 private:
  // Takes the x-th block of keys, head after head. Causal: a head's first keys, which most queries
  // see, go first; in ordered mode its last, since a block waits for the block of the next keys.
  __device__ __forceinline__ void take_from_head(const BackwardParameters& p, int x) {
    const int place = x % p.key_blocks;
    block = Traits::kCausal && p.turns != nullptr ? p.key_blocks - 1 - place : place;
    head_of_all = x / p.key_blocks;
  }
  // Takes the x-th block of keys, section after section of heads; in a section, keys that most
  // queries see come first: where heads share keys, blocks are long and few, and a long one must
  // not be the last. In ordered mode a block waits for the block of the keys before its own.
  __device__ __forceinline__ void take_from_section(const BackwardParameters& p, int x) {
    const int section_blocks = p.section_heads * p.key_blocks;
    const int section = x / section_blocks, first_head = section * p.section_heads;
    const int heads = min(p.section_heads, p.all_key_heads - first_head);
    const int place = x - section * section_blocks;
    block = place / heads;
    head_of_all = first_head + place - block * heads;
    if (p.round == 0) return;
    const int rounds = (section_blocks + p.round - 1) / p.round;
    is_descending = (section * rounds + place / p.round) % 2 == 0;
  }
};

// The order in which blocks of queries meet a block of keys; the producer, the consumers and the
// threads that add up dQ follow it. Heads that share keys take turns at each block of queries. All
// blocks of keys of a section go from the last queries to the first: they begin at the same ones,
// and follow each other at the distance of one addition in ordered mode. Where rounds alternate,
// every second one goes from its diagonal to the last queries: its blocks start as those of the
// round before end, the shortest first, each at the queries that those before it have reached. So
// the blocks of a head read the same queries at about the same time, and these come from L2.
template <class Traits>
struct BackwardWalk {
  int block, left, member = 0;  // left: blocks of queries; member: of the heads that share the keys
  __device__ __forceinline__ BackwardWalk(const BackwardTile<Traits>& tile,
                                          const BackwardParameters& p)
      : block(goes_down(tile) ? tile.end - 1 - tile.part : tile.begin + tile.part),
        left(blocks(tile, p)) {}
  __device__ __forceinline__ void advance(const BackwardTile<Traits>& tile,
                                          const BackwardParameters& p) {
    if (Traits::kGrouped && ++member < p.group) return;
    member = 0;
    --left;
    const int distance = Traits::kGrouped ? p.parts : 1;
    block += goes_down(tile) ? -distance : distance;
  }
  // Returns the current head of q, one of those that read the head `head` of k and v.
  __device__ __forceinline__ int query_head(int head, const BackwardParameters& p) const {
    return Traits::kGrouped ? head * p.group + member : head;
  }
  static __device__ __forceinline__ int steps(const BackwardTile<Traits>& tile,
                                              const BackwardParameters& p) {
    return blocks(tile, p) * (Traits::kGrouped ? p.group : 1);
  }

 private:
  static __device__ __forceinline__ int blocks(const BackwardTile<Traits>& tile,
                                               const BackwardParameters& p) {
    const int all = tile.end - tile.begin;
    return Traits::kGrouped ? (all - tile.part + p.parts - 1) / p.parts : all;
  }
  static __device__ __forceinline__ bool goes_down(const BackwardTile<Traits>& tile) {
    return Traits::kGrouped && tile.is_descending;
  }
};

// Stores at `target`, as int32, for each key of the block the first query after those that see it,
// counted from the query whose last visible key is the first of the key's group of 64, as
// mask_document_ends() reads it. All threads call this before __syncthreads().
template <class Traits>
__device__ __forceinline__ void load_document_ends(const BackwardParameters& p,
                                                   std::uint32_t target) {
  if constexpr (Traits::kDocuments) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= Traits::kN) return;
    const BackwardTile<Traits> tile(p);
    const int key = tile.first_key + i, origin = tile.first_key + i / 64 * 64 - p.offset;
    const int end = tile.documents(p).end_query(key, key - p.offset + p.window);
    store_word(target + 4 * i, static_cast<std::uint32_t>(end - origin));
  }
}

// --- producer: one thread ------------------------------------------------------------------------
// Loads K and V of the block once, then Q and dO of each block of queries as buffers become free.
template <class Traits, class Layout = BackwardLayout<Traits>>
__device__ __forceinline__ void produce_backward(const BackwardParameters& p,
                                                 std::uint32_t shared) {
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  const BackwardTile<Traits> tile(p);
  BackwardWalk<Traits> walk(tile, p);
  if (walk.left <= 0) return;
  Ring<Traits::kQStages> ring_q;
  Ring<Traits::kDOStages> ring_do;
  barrier_arrive_expect(shared + Layout::kKFull, K::kBytes);
  load_tile<K>(shared + Layout::kK, &p.k, shared + Layout::kKFull, tile.first_key, tile.head,
               tile.batch);
  barrier_arrive_expect(shared + Layout::kVFull, K::kBytes);
  load_tile<K>(shared + Layout::kV, &p.v, shared + Layout::kVFull, tile.first_key, tile.head,
               tile.batch);
#pragma unroll 1  // 24 registers have to do
  for (; walk.left > 0; walk.advance(tile, p)) {
    const int row = walk.block * Traits::kM, head = walk.query_head(tile.head, p);
    const std::int64_t place =
        std::int64_t{walk.query_head(tile.head_of_all, p)} * p.padded_queries + row;
    barrier_wait(shared + Layout::kQEmpty + 8 * ring_q.stage, ring_q.parity ^ 1);
    const std::uint32_t q_full = shared + Layout::kQFull + 8 * ring_q.stage;
    barrier_arrive_expect(q_full, Q::kBytes + Layout::kRowBytes);
    load_tile<Q>(shared + Layout::kQ + ring_q.stage * Q::kBytes, &p.q, q_full, row, head,
                 tile.batch);
    load_bytes(shared + Layout::kLse + ring_q.stage * Layout::kRowBytes, p.lse2 + place,
               Layout::kRowBytes, q_full);
    ring_q.advance();
    barrier_wait(shared + Layout::kDOEmpty + 8 * ring_do.stage, ring_do.parity ^ 1);
    const std::uint32_t do_full = shared + Layout::kDOFull + 8 * ring_do.stage;
    barrier_arrive_expect(do_full, Q::kBytes + Layout::kRowBytes);
    load_tile<Q>(shared + Layout::kDO + ring_do.stage * Q::kBytes, &p.d_o, do_full, row, head,
                 tile.batch);
    load_bytes(shared + Layout::kDelta + ring_do.stage * Layout::kRowBytes, p.delta + place,
               Layout::kRowBytes, do_full);
    ring_do.advance();
  }
}

// --- two threads add dQ to the sums, in the order of `turns`, which these functions read and raise
__device__ __forceinline__ int load_acquire(const int* address) {
  int x;
  asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(int* address) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(address) : "memory");
}

// Waits until `wanted` blocks have added to dQ, but some seconds at most: where documents' bounds
// contradict each other, the number may never be reached, and the device must not hang.
__device__ __forceinline__ void wait_for_turn(const int* turn, int wanted) {
  constexpr int kMostPolls = 1 << 22;
  for (int i = 0; i < kMostPolls && load_acquire(turn) < wanted; ++i) {
  }
}

// Adds dQ of each second step to the sums; meanwhile another thread adds dQ of the steps between.
template <class Traits>
__device__ __forceinline__ void drain_queries(const BackwardParameters& p, std::uint32_t shared,
                                              int which) {
  using Layout = BackwardLayout<Traits>;
  constexpr int kD = Traits::kD, kM = Traits::kM;
  // Floats that the second warpgroup leaves out, and where its share of a block of queries starts.
  constexpr int kLeftOut = Layout::kQShared * 64;
  constexpr int kSecond = kM == 128 ? 64 * kD : Layout::kQFirst * 64 + kLeftOut;
  const std::uint32_t full = shared + Layout::kDQFull + 16 * which, dq = shared + Layout::kDQ;
  const BackwardTile<Traits> tile(p);
  int step = 0;
  for (BackwardWalk<Traits> walk(tile, p); walk.left > 0; walk.advance(tile, p), ++step) {
    if (step % 2 != which) continue;
    const std::int64_t head = walk.query_head(tile.head_of_all, p);
    int* turn = p.turns;
    if (turn != nullptr) {
      turn += head * tile.blocks_of_head + walk.block;
      if constexpr (Traits::kDocuments) {
        wait_for_turn(turn, tile.turn(walk.block, p));
      } else {
        while (load_acquire(turn) != tile.turn(walk.block, p)) {
        }
      }
    }
    float* target = p.dq_sums + (head * p.padded_queries + walk.block * kM) * kD;
    const std::uint32_t parity = static_cast<unsigned>(step / 2 % 2);
    barrier_wait(full, parity);
    add_floats(target, dq, Layout::kQBytes);
    barrier_wait(full + 8, parity);
    add_floats(target + kSecond, dq + Layout::kQBytes + 4 * kLeftOut,
               Layout::kQBytes - 4 * kLeftOut);
    bulk_commit();
    bulk_wait_read<0>();
    barrier_arrive(shared + Layout::kDQEmpty);
    barrier_arrive(shared + Layout::kDQEmpty + 8);
    if (turn != nullptr) {
      bulk_wait<0>();
      add_release(turn);
    }
  }
  bulk_wait<0>();
}

}  // namespace tracestep::cuda

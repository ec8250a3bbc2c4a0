// Attention forward on Hopper: a warpgroup's warps feed tiles of Q, K and V to shared memory, two
// to four warpgroups of 64 query rows each multiply and take the softmax. The scores of the next
// block of keys are multiplied while the softmax of this one is taken (overlap), and the warpgroups
// take turns at the matrix units (turns, "ping-pong"), so that one's softmax runs under another's
// products. Where tiles are short, two teams of two warpgroups have a tile each: what a tile cannot
// overlap with itself (its first scores, its end) runs under the other's. What each of these is
// worth: the ladder, bench/kernels/attention/hopper.cu.
// Sources: Shah et al. 2024, "FlashAttention-3", Alg. 1 and 2; the rescaling threshold: Dao et al.
// 2025, "FlashAttention-4".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/attention/hopper_cap.cuh"
#include "backends/cuda/attention/hopper_forward_feed.cuh"
#include "backends/cuda/attention/hopper_forward_parts.cuh"
#include "backends/cuda/attention/hopper_mask.cuh"
#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_softmax.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"
#include "backends/cuda/predecessors.cuh"

namespace tracestep::cuda {

// --- a consumer: one warpgroup -------------------------------------------------------------------
// Computes 64 query rows of each tile: products, softmax and result, until there are no more tiles.
template <class Traits>
class ForwardConsumer {
  using Layout = ForwardLayout<Traits>;
  using T = typename Traits::T;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  static constexpr int kD = Traits::kD, kN = Traits::kN, kGroups = Traits::kGroups;

 public:
  __device__ __forceinline__ ForwardConsumer(const ForwardParameters& parameters,
                                             std::uint32_t shared_base, int group_index,
                                             int first_barrier)
      : p_(parameters),
        shared_(shared_base),
        group_(group_index),
        barrier_(first_barrier + group_index) {}

  __device__ __forceinline__ void run() {
    if (Traits::kTurns && group_ == kGroups - 1) pass_turn();  // group 0 begins
    while (true) {
      barrier_wait(shared_ + Layout::kQFull + 8 * ring_q_.stage, ring_q_.parity);
      const int row = tile().row;
      if (row < 0) break;
      attend(row);
      if (Traits::kDivided) return;
      if (Traits::kOInQ && thread() == 0) bulk_wait_read<0>();
      release(Layout::kQEmpty + 8 * ring_q_.stage);
      ring_q_.advance();
    }
    if (Traits::kTurns && group_ == 0) take_turn();  // nothing may stay pending on a barrier
    if (thread() == 0) bulk_wait_read<0>();
  }

 private:
  using BlockRing = Ring<Traits::kStages>;
  // Returns the thread's index in the warpgroup, read from %tid each time, which saves a register.
  static __device__ __forceinline__ int thread() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t & 127;
  }
  __device__ __forceinline__ void take_turn() { named_sync(barrier_, 256); }
  __device__ __forceinline__ void pass_turn() {
    named_arrive(group_ + 1 == kGroups ? barrier_ + 1 - kGroups : barrier_ + 1, 256);
  }
  // Returns the tile of the Q that is next or in use; it is loaded at each use, to save registers.
  __device__ __forceinline__ ForwardTile tile() const {
    return ForwardTile::load(shared_ + Layout::kTiles + 16 * ring_q_.stage);
  }
  // Arrives at the barrier, once for each warp that calls this.
  __device__ __forceinline__ void release(int barrier) {
    __syncwarp();
    if (thread() % 32 == 0) barrier_arrive(shared_ + barrier);
  }

  __device__ __forceinline__ void multiply_scores(const BlockRing& ring) {
    const std::uint64_t q =
        Q::along_rows(shared_ + Layout::kQ + ring_q_.stage * Q::kBytes + group_ * 64 * Q::kSwizzle);
    const std::uint64_t k = K::along_rows(shared_ + Layout::kK + ring.stage * K::kBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kD / 16; ++step)
      Wgmma<T, kN>::template ss<0, 0>(s_, q + Q::along_step(step), k + K::along_step(step),
                                      step > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply_values() {
    const std::uint64_t v = K::down_rows(shared_ + Layout::kV + ring_.stage * K::kBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kN / 16; ++step)
      Wgmma<T, kD>::template rs<1>(o_, p16_ + 4 * step, v + K::down_step(step), 1);
    wgmma_commit();
  }
  __device__ __forceinline__ void wait_k(const BlockRing& ring) {
    barrier_wait(shared_ + Layout::kKFull + 8 * ring.stage, ring.parity);
  }
  __device__ __forceinline__ void free_k(const BlockRing& ring) {
    release(Layout::kKEmpty + 8 * ring.stage);
  }
  __device__ __forceinline__ void wait_v() {
    barrier_wait(shared_ + Layout::kVFull + 8 * ring_.stage, ring_.parity);
  }
  // Frees the buffer of a block's V, and moves on to the next block; free_k() freed K before.
  __device__ __forceinline__ void free_v() {
    release(Layout::kVEmpty + 8 * ring_.stage);
    ring_.advance();
  }
  __device__ __forceinline__ BlockRing next_block() const {
    BlockRing ring = ring_;
    ring.advance();
    return ring;
  }

  __device__ __forceinline__ void mask(int block, int first_row) {
    if constexpr (Traits::kCapped) take_tangents(s_, p_.to_tangent);
    const auto documents = document_sight<Traits>(
        p_.documents, kKnowsDocuments<Traits> ? tile().batch : 0, p_.queries);
    mask_scores<Traits, kN>(s_, first_row, block * kN, p_.keys, p_.offset, p_.window, documents,
                            thread());
  }

  __device__ __forceinline__ void round_probabilities() {
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) p16_[i] = pack<T>(s_[2 * i], s_[2 * i + 1]);
  }

  // Computes o and lse of this warpgroup's 64 queries in the tile of queries from `tile_row` on.
  __device__ __forceinline__ void attend(int tile_row) {
    const int first_row = tile_row + group_ * 64;
    const int all_blocks = key_blocks<Traits>(p_, min(tile_row + Layout::kM, p_.queries) - 1);
    const int blocks = min(all_blocks, key_blocks<Traits>(p_, first_row + 63));
    const int begin = first_key_block<Traits>(p_, tile(), all_blocks);
    const int distance = key_distance<Traits>(p_);
    int block = all_blocks - 1 - key_part<Traits>();
#pragma unroll 1
    for (; block >= blocks; block -= distance) skip_block();
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) o_[i] = 0;
    if (Traits::kDivided && block < begin)
      softmax_.begin_empty();
    else
      attend_blocks(block, begin, distance, first_row);
    if constexpr (Traits::kDivided)
      merge_parts<Traits>(p_, tile(), shared_, group_, thread(), o_, softmax_.state());
    else
      finish(first_row);
  }

  // Attends to blocks of keys: `block`, block - distance, ..., down to `begin`.
  __device__ __forceinline__ void attend_blocks(int block, int begin, int distance, int first_row) {
    wait_k(ring_);
    multiply_scores(ring_);
    wgmma_wait<0>();
    pin(s_);
    free_k(ring_);
    mask(block, first_row);
    softmax_.begin(s_, p_.scale_log2);
    round_probabilities();
    for (block -= distance; block >= begin; block -= distance) {
      if constexpr (Traits::kOverlap)
        step_overlapped(block, first_row);
      else
        step_in_order(block, first_row);
    }
    wait_v();
    multiply_values();
    wgmma_wait<0>();
    pin(o_);
    free_v();
  }

  // Starts the scores of `block`, then P V of the block before, during which it takes the softmax
  // of the scores.
  __device__ __forceinline__ void step_overlapped(int block, int first_row) {
    const BlockRing next = next_block();
    wait_k(next);
    if (Traits::kTurns) take_turn();
    multiply_scores(next);
    wait_v();
    multiply_values();
    if (Traits::kTurns) pass_turn();
    wgmma_wait<1>();
    pin(s_);
    free_k(next);
    mask(block, first_row);
    float factor[2];
    const bool grows = softmax_.advance(s_, p_.scale_log2, Traits::kThreshold, factor);
    wgmma_wait<0>();
    pin(o_);
    pin(p16_);
    free_v();
    round_probabilities();
    if (grows) scale_rows(o_, factor);
  }

  __device__ __forceinline__ void step_in_order(int block, int first_row) {
    const BlockRing next = next_block();
    wait_v();
    if (Traits::kTurns) take_turn();
    multiply_values();
    wait_k(next);
    multiply_scores(next);
    if (Traits::kTurns) pass_turn();
    wgmma_wait<0>();
    pin(s_);
    pin(o_);
    pin(p16_);
    free_v();
    free_k(next);
    mask(block, first_row);
    float factor[2];
    const bool grows = softmax_.advance(s_, p_.scale_log2, Traits::kThreshold, factor);
    round_probabilities();
    if (grows) scale_rows(o_, factor);
  }

  // Skips a block that only rows of later warpgroups see; rings and turns stay in step.
  __device__ __forceinline__ void skip_block() {
    wait_k(ring_);
    free_k(ring_);
    wait_v();
    free_v();
    if (Traits::kTurns) {
      take_turn();
      pass_turn();
    }
  }

  __device__ __forceinline__ void finish(int first_row) {
    const ForwardTile tile = this->tile();
    const int thread = this->thread();
    float factor[2], lse[2];
    softmax_.end(factor, lse, p_.scale_log2);
    scale_rows(o_, factor);
    const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
    float* lse_of_head = p_.lse + std::int64_t{tile.head_of_all} * p_.queries;
    if (p_.lse != nullptr && thread % 4 == 0) {
      if (row < p_.queries) lse_of_head[row] = lse[0];
      if (row + 8 < p_.queries) lse_of_head[row + 8] = lse[1];
    }
    // Through shared memory, once the copy engine has read what the last tile left there.
    using Staged = std::conditional_t<Traits::kOInQ, Q, typename Layout::O>;
    const int staged_row = Traits::kOInQ ? group_ * 64 : 0;
    const std::uint32_t staged =
        shared_ + (Traits::kOInQ ? Layout::kQ : Layout::kO + group_ * Layout::O::kBytes);
    if (thread == 0) bulk_wait_read<0>();
    named_sync(barrier_ + kGroups, 128);
    store_fragment<T, Staged, kD / 8>(staged, o_, staged_row, thread);
    fence_async();
    named_sync(barrier_ + kGroups, 128);
    if (thread == 0) {
      if (p_.has_o && first_row < p_.queries)
        store_tile<Staged>(&p_.o, staged + staged_row * Staged::kSwizzle, first_row, tile.head,
                           tile.batch);
      bulk_commit();
    }
  }

  const ForwardParameters& p_;
  std::uint32_t shared_;
  int group_;
  int barrier_;     // named: of this warpgroup's turn; + kGroups: of itself
  BlockRing ring_;  // the stage of the block whose P V is next
  Ring<Traits::kQStages> ring_q_;
  RowSoftmax softmax_;
  float s_[kN / 2];            // scores, then probabilities, of a block
  float o_[kD / 2];            // sum of P V
  std::uint32_t p16_[kN / 4];  // P of the block whose P V is next, rounded
};

// The registers per thread of the producer's warpgroup and of each of kGroups consumers.
template <int kGroups>
struct RegisterShare {
  static constexpr int kProducer = kGroups == 1 ? 56 : kGroups == 2 ? 40 : 32;
  static constexpr int kConsumer = kGroups == 1   ? 256 - 8
                                   : kGroups == 2 ? 232
                                   : kGroups == 3 ? 160
                                                  : 112;
};

// Initializes the barriers of one team.
template <class Traits>
__device__ __forceinline__ void init_barriers(std::uint32_t shared) {
  using Layout = ForwardLayout<Traits>;
  constexpr int kWarps = 4 * Traits::kGroups;
  for (int i = 0; i < Traits::kQStages; ++i) {
    barrier_init(shared + Layout::kQFull + 8 * i, 1);
    barrier_init(shared + Layout::kQEmpty + 8 * i, kWarps);
  }
  for (int i = 0; i < Traits::kStages; ++i) {
    barrier_init(shared + Layout::kKFull + 8 * i, 1);
    barrier_init(shared + Layout::kKEmpty + 8 * i, kWarps);
    barrier_init(shared + Layout::kVFull + 8 * i, 1);
    barrier_init(shared + Layout::kVEmpty + 8 * i, kWarps);
  }
}

template <class Traits>
__global__ void __launch_bounds__(ForwardLayout<Traits>::kThreads, 1)
    hopper_attention_forward_kernel(Predecessors before,
                                    const __grid_constant__ ForwardParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.wait();
  using Layout = ForwardLayout<Traits>;
  using Registers = RegisterShare<Traits::kTeams * Traits::kGroups>;
  constexpr int kGroups = Traits::kGroups;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    prefetch_map(&p.q);
    prefetch_map(&p.k);
    prefetch_map(&p.v);
    prefetch_map(&p.o);
    for (int team = 0; team < Traits::kTeams; ++team)
      init_barriers<Traits>(shared + team * Layout::kTeamBytes);
    barrier_init_fence();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<Registers::kProducer>();
    if (warp < Traits::kTeams && threadIdx.x % 32 == 0)
      produce_forward<Traits>(p, shared + warp * Layout::kTeamBytes, warp);
  } else {
    take_registers<Registers::kConsumer>();
    const int group = warp / 4 - 1, team = group / kGroups;
    ForwardConsumer<Traits> consumer(p, shared + team * Layout::kTeamBytes, group % kGroups,
                                     1 + team * 2 * kGroups);
    consumer.run();
  }
#endif
}

}  // namespace tracestep::cuda

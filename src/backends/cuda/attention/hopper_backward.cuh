// Attention backward on Hopper: a block keeps 128 keys (K, V, dK, dV; 64 per consuming warpgroup)
// and walks the queries of every head that shares them. Scores are computed transposed, S' = K Q'
// and dP' = V dO', so that P' and dS' lie in registers as the left operands of dV += P' dO and dK
// += dS' Q; dS also goes through shared memory for dQ = dS K, which two more warps add to float32
// sums in global memory by bulk reductions. S' of the next block of queries is multiplied under dK,
// dQ and the exponentials of this one. In ordered mode the additions of a block of queries wait for
// their turn: the same bits every run. Sources: Dao 2023, "FlashAttention-2", Alg. 2; Shah et al.
// 2024, "FlashAttention-3", Appendix B.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/hopper_backward_feed.cuh"
#include "backends/cuda/attention/hopper_cap.cuh"
#include "backends/cuda/attention/hopper_mask.cuh"
#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"
#include "backends/cuda/predecessors.cuh"

namespace tracestep::cuda {

// --- a consumer: one warpgroup -------------------------------------------------------------------
// Sums up dK and dV of its 64 keys in registers, and computes dQ, block by block of queries.
template <class Traits>
class BackwardConsumer {
  using Layout = BackwardLayout<Traits>;
  using T = typename Traits::T;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  using DS = typename Layout::DS;
  static constexpr int kD = Traits::kD, kM = Traits::kM, kN = Traits::kN;
  static constexpr int kBothGroups = 1;  // named barrier

 public:
  __device__ __forceinline__ BackwardConsumer(const BackwardParameters& parameters,
                                              std::uint32_t shared_base, int group_index)
      : p_(parameters), shared_(shared_base), group_(group_index) {
    const BackwardTile<Traits> tile(parameters);
    const int first_key = tile.first_key + group_index * 64;
    keys_left_ = parameters.keys - first_key;
    distance_ = first_key - parameters.offset - tile.begin * kM;
    count_ = BackwardWalk<Traits>::steps(tile, parameters);
    turned_ = tile.is_descending ? tile.end - tile.begin - 1 : 0;
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) dk_[i] = dv_[i] = 0;
    pin(dk_);  // set to zero before any product is in flight
    pin(dv_);
    if (count_ > 0) {
      barrier_wait(shared_ + Layout::kKFull, 0);
      if constexpr (Traits::kAhead) {
        multiply_scores(ring_q_);
        wgmma_wait<0>();
        pin(s_);
      }
      barrier_wait(shared_ + Layout::kVFull, 0);
      for (; done_ + 1 < count_; ++done_) step<false>();
      step<true>();
      wgmma_wait<0>();
      pin(dk_);
      pin(dv_);
    }
    finish();
  }

 private:
  // Returns the thread's index in the warpgroup, read from %tid each time, which saves a register.
  static __device__ __forceinline__ int thread() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t & 127;
  }
  __device__ __forceinline__ void release(int barrier) {
    __syncwarp();
    if (thread() % 32 == 0) barrier_arrive(shared_ + barrier);
  }
  // Releases a block of Q or dO and its statistics. Every thread arrives, at no cost: racecheck of
  // compute-sanitizer does not understand one thread that arrives for its warp.
  __device__ __forceinline__ void release_block(int barrier) {
    barrier_arrive(shared_ + barrier);
  }
  // Starts S' = K Q' for the block of Q in the buffer that `ring` points at.
  __device__ __forceinline__ void multiply_scores(const Ring<Traits::kQStages>& ring) {
    barrier_wait(shared_ + Layout::kQFull + 8 * ring.stage, ring.parity);
    const std::uint64_t k =
        K::along_rows(recomputed(shared_) + Layout::kK + group_ * 64 * K::kSwizzle);
    const std::uint64_t q = Q::along_rows(shared_ + Layout::kQ + ring.stage * Q::kBytes);
    forget(s_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i)
      Wgmma<T, kM>::template ss<0, 0>(s_, k + K::along_step(i), q + Q::along_step(i), i > 0);
    wgmma_commit();
  }
  // Starts dP' = V dO' for the block of dO in the current buffer.
  __device__ __forceinline__ void multiply_dp() {
    barrier_wait(shared_ + Layout::kDOFull + 8 * buffer(), static_cast<unsigned>(done_ / 2 & 1));
    const std::uint64_t v =
        K::along_rows(recomputed(shared_) + Layout::kV + group_ * 64 * K::kSwizzle);
    const std::uint64_t d_o = Q::along_rows(shared_ + Layout::kDO + buffer() * Q::kBytes);
    forget(dp_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i)
      Wgmma<T, kM>::template ss<0, 0>(dp_, v + K::along_step(i), d_o + Q::along_step(i), i > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply_dv() {
    const std::uint64_t d_o = Q::down_rows(shared_ + Layout::kDO + buffer() * Q::kBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
      Wgmma<T, kD>::template rs<1>(dv_, p16_ + 4 * i, d_o + Q::down_step(i), 1);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply_dk() {
    const std::uint64_t q = Q::down_rows(shared_ + Layout::kQ + ring_q_.stage * Q::kBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
      Wgmma<T, kD>::template rs<1>(dk_, ds16_ + 4 * i, q + Q::down_step(i), 1);
    wgmma_commit();
  }
  // Starts dQ = dS K over all keys of the block; both operands' tiles are read down the rows.
  __device__ __forceinline__ void multiply_dq() {
    const std::uint64_t ds =
        DS::down_rows(recomputed(shared_) + Layout::kDS + buffer() * DS::kBytes +
                      (kM == 128 ? group_ * DS::kPanelBytes : 0));
    const std::uint64_t k = K::down_rows(recomputed(shared_) + Layout::kK +
                                         group_ * (Layout::kQFirst / K::kColumns) * K::kPanelBytes);
    static_assert(Layout::kQFirst % K::kColumns == 0);
    forget(dq_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kN / 16; ++i)
      Wgmma<T, Layout::kQColumns>::template ss<1, 1>(dq_, ds + DS::down_step(i),
                                                     k + K::down_step(i), i > 0);
    wgmma_commit();
  }

  // Returns how many blocks of queries come before the current, from the first that sees the keys.
  __device__ __forceinline__ int blocks_before() const {
    if (!Traits::kGrouped) return done_;
    const int part = cluster_rank();
    return abs(turned_ - part - done_ / p_.group * p_.parts);
  }

  __device__ __forceinline__ void mask() {
    if constexpr (Traits::kCapped) take_tangents(s_, p_.to_tangent);
    mask_transposed<Traits, kM>(s_, distance_ - blocks_before() * kM, keys_left_, p_.window,
                                thread());
    if constexpr (Traits::kDocuments)
      mask_document_ends<kM>(s_, distance_ - blocks_before() * kM,
                             shared_ + Layout::kDocumentEnds + group_ * 256, thread());
  }

  // Computes P' = exp2(scale S' - LSE).
  __device__ __forceinline__ void exponentiate() {
    const std::uint32_t lse =
        shared_ + Layout::kLse + ring_q_.stage * Layout::kRowBytes + thread() % 4 * 8;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 l = load_float2(lse + 32 * j);
      s_[4 * j] = exp2_fast(fmaf(s_[4 * j], p_.scale_log2, -l.x));
      s_[4 * j + 1] = exp2_fast(fmaf(s_[4 * j + 1], p_.scale_log2, -l.y));
      s_[4 * j + 2] = exp2_fast(fmaf(s_[4 * j + 2], p_.scale_log2, -l.x));
      s_[4 * j + 3] = exp2_fast(fmaf(s_[4 * j + 3], p_.scale_log2, -l.y));
      if constexpr (!Traits::kLateValues) round_probabilities(j);
    }
  }
  __device__ __forceinline__ void round_probabilities(int j) {
    p16_[2 * j] = pack<T>(s_[4 * j], s_[4 * j + 1]);
    p16_[2 * j + 1] = pack<T>(s_[4 * j + 2], s_[4 * j + 3]);
  }
  // Computes dS' = P' (dP' - delta).
  __device__ __forceinline__ void differentiate() {
    const std::uint32_t delta =
        shared_ + Layout::kDelta + buffer() * Layout::kRowBytes + thread() % 4 * 8;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 d = load_float2(delta + 32 * j);
      if constexpr (Traits::kLateValues) round_probabilities(j);
      ds16_[2 * j] =
          pack<T>(s_[4 * j] * (dp_[4 * j] - d.x), s_[4 * j + 1] * (dp_[4 * j + 1] - d.y));
      ds16_[2 * j + 1] =
          pack<T>(s_[4 * j + 2] * (dp_[4 * j + 2] - d.x), s_[4 * j + 3] * (dp_[4 * j + 3] - d.y));
    }
  }
  // Computes P' and dS' from the tangents of capped scores: dS' = P' (1 - t^2) (dP' - delta).
  __device__ __forceinline__ void differentiate_tangents() {
    const std::uint32_t lse =
        shared_ + Layout::kLse + ring_q_.stage * Layout::kRowBytes + thread() % 4 * 8;
    const std::uint32_t delta =
        shared_ + Layout::kDelta + buffer() * Layout::kRowBytes + thread() % 4 * 8;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 l = load_float2(lse + 32 * j), d = load_float2(delta + 32 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float &s = s_[4 * j + e], &dp = dp_[4 * j + e];
        dp = (dp - (e % 2 == 0 ? d.x : d.y)) * slope_of_cap(s);
        s = exp2_fast(fmaf(s, p_.scale_log2, e % 2 == 0 ? -l.x : -l.y));
        dp *= s;
      }
      round_probabilities(j);
      ds16_[2 * j] = pack<T>(dp_[4 * j], dp_[4 * j + 1]);
      ds16_[2 * j + 1] = pack<T>(dp_[4 * j + 2], dp_[4 * j + 3]);
    }
  }
  __device__ __forceinline__ void store_ds() {
    const int t = thread(), lane = t % 32;
    const std::uint32_t tile = shared_ + Layout::kDS + buffer() * DS::kBytes;
    const int row = group_ * 64 + t / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < kM / 8; j += 2)
      store_matrices(tile + DS::offset(row, j + lane / 16), ds16_[2 * j], ds16_[2 * j + 1],
                     ds16_[2 * j + 2], ds16_[2 * j + 3]);
    fence_async();
  }
  static __device__ __forceinline__ int previous(int stage) {
    return stage == 0 ? Traits::kQStages - 1 : stage - 1;
  }
  // Returns this step's buffer of dO and of dS: 0 and 1 in turns, as is the parity of kDQEmpty.
  __device__ __forceinline__ int buffer() const {
    static_assert(Traits::kDOStages == 2);
    return done_ & 1;
  }
  __device__ __forceinline__ void hand_over_dq() {
    barrier_wait(shared_ + Layout::kDQEmpty + 8 * group_, static_cast<unsigned>(buffer() ^ 1));
    const std::uint32_t target = shared_ + Layout::kDQ + group_ * Layout::kQBytes + thread() * 16;
#pragma unroll
    for (int j = 0; j < Layout::kQColumns / 8; ++j)
      store_float4(target + j * 2048, dq_[4 * j], dq_[4 * j + 1], dq_[4 * j + 2], dq_[4 * j + 3]);
    fence_async();
    release(Layout::kDQFull + 16 * buffer() + 8 * group_);
  }

  template <bool kLast>
  __device__ __forceinline__ void step() {
    if constexpr (!Traits::kAhead) multiply_scores(ring_q_);
    multiply_dp();
    if constexpr (!Traits::kAhead) {
      wgmma_wait<1>();
      pin(s_);
      pin(ds16_);
    }
    mask();
    if constexpr (!Traits::kCapped) exponentiate();
    if constexpr (!Traits::kLateValues) multiply_dv();
    wgmma_wait<Traits::kLateValues ? 0 : 1>();  // in flight: dV
    pin(dp_);
    if constexpr (!Traits::kEarlyKeys) {
      pin(ds16_);
      if (done_ > 0) release_block(Layout::kQEmpty + 8 * previous(ring_q_.stage));
    }
    if constexpr (Traits::kCapped)
      differentiate_tangents();
    else
      differentiate();
    if constexpr (Traits::kLateValues) multiply_dv();
    store_ds();
    wgmma_wait<0>();
    pin(p16_);
    release_block(Layout::kDOEmpty + 8 * buffer());
    named_sync(kBothGroups, 256);  // dS of both is there; dQ of the block before last is done
    multiply_dq();
    Ring<Traits::kQStages> next = ring_q_;
    next.advance();
    if constexpr (!kLast && Traits::kAhead) multiply_scores(next);
    multiply_dk();
    wgmma_wait<kLast || !Traits::kAhead ? 1 : 2>();  // in flight: the next scores, dK
    pin(dq_);
    hand_over_dq();
    if constexpr (!kLast && Traits::kAhead) {
      wgmma_wait<Traits::kEarlyKeys ? 0 : 1>();  // in flight: dK
      pin(s_);
    }
    if constexpr (!kLast && Traits::kEarlyKeys) {
      if constexpr (!Traits::kAhead) wgmma_wait<0>();
      pin(ds16_);
      release_block(Layout::kQEmpty + 8 * ring_q_.stage);
    }
    ring_q_ = next;
  }

  // Writes dK or dV of this block to shared memory, where the cluster's other blocks read it.
  __device__ __forceinline__ void show(int part, const float (&d)[kD / 2]) {
    const std::uint32_t target = shared_ + part + (group_ * 128 + thread()) * 16;
#pragma unroll
    for (int j = 0; j < kD / 8; ++j)
      store_float4(target + j * 4096, d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
  }
  // Adds the sums of dK or dV that the cluster's other blocks show, starting at the next rank.
  __device__ __forceinline__ void add_others(int part, float (&d)[kD / 2]) {
    const std::uint32_t own = shared_ + part + (group_ * 128 + thread()) * 16;
    for (int i = 1; i < p_.parts; ++i) {
      const std::uint32_t source = address_in_cluster(own, (cluster_rank() + i) % p_.parts);
#pragma unroll
      for (int j = 0; j < kD / 8; ++j) {
        const float4 x = load_float4_in_cluster(source + j * 4096);
        d[4 * j] += x.x;
        d[4 * j + 1] += x.y;
        d[4 * j + 2] += x.z;
        d[4 * j + 3] += x.w;
      }
    }
  }
  // Sums dK and dV over the cluster's blocks: block 0 gets the sum of dK, block 1 that of dV.
  __device__ __forceinline__ void sum_parts() {
    constexpr int kKeys = Layout::kPart, kValues = kKeys + Layout::kPartBytes;
    const int rank = cluster_rank();
    if (rank != 0) show(kKeys, dk_);
    if (rank != 1) show(kValues, dv_);
    cluster_sync();
    if (rank == 0) add_others(kKeys, dk_);
    if (rank == 1) add_others(kValues, dv_);
    cluster_sync();  // until then nobody leaves, or writes over what is read
  }

  __device__ __forceinline__ void finish() {
    named_sync(kBothGroups, 256);  // both warpgroups have finished with K and V
    bool has_dk = p_.has_dk, has_dv = p_.has_dv;
    if (Traits::kGrouped && p_.parts > 1) {
      sum_parts();
      has_dk = has_dk && cluster_rank() == 0;
      has_dv = has_dv && cluster_rank() == 1;
    }
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) dk_[i] *= p_.scale;
    using Out = typename Layout::Out;
    const std::uint32_t dk = shared_ + Layout::kK + group_ * Out::kBytes;
    const std::uint32_t dv = shared_ + Layout::kV + group_ * Out::kBytes;
    store_fragment<T, Out, kD / 8>(dk, dk_, 0, thread());
    store_fragment<T, Out, kD / 8>(dv, dv_, 0, thread());
    fence_async();
    named_sync(2 + group_, 128);
    if (thread() == 0 && keys_left_ > 0) {
      const BackwardTile<Traits> tile(p_);
      const int first_key = tile.first_key + group_ * 64;
      if (has_dk) store_tile<Out>(&p_.dk, dk, first_key, tile.head, tile.batch);
      if (has_dv) store_tile<Out>(&p_.dv, dv, first_key, tile.head, tile.batch);
      bulk_commit();
      bulk_wait_read<0>();
    }
  }

  const BackwardParameters& p_;
  std::uint32_t shared_;
  int group_;
  int keys_left_;  // keys from this warpgroup's first one on
  // The first key of this warpgroup, less the last key that the first query sees.
  int distance_;
  int done_ = 0, count_;  // steps: blocks of queries, of each head that shares the keys
  int turned_;            // descending: blocks before the last; ascending: 0
  Ring<Traits::kQStages> ring_q_;
  float s_[kM / 2], dp_[kM / 2];
  float dk_[kD / 2], dv_[kD / 2], dq_[Layout::kQColumns / 2];
  std::uint32_t p16_[kM / 4], ds16_[kM / 4];
};

template <class Traits>
__global__ void __launch_bounds__(384, 1)
    hopper_attention_backward_kernel(Predecessors before,
                                     const __grid_constant__ BackwardParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.wait();
  using Layout = BackwardLayout<Traits>;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    prefetch_map(&p.q);
    prefetch_map(&p.k);
    prefetch_map(&p.v);
    prefetch_map(&p.d_o);
    prefetch_map(&p.dk);
    prefetch_map(&p.dv);
    constexpr int kReaders = 256;
    barrier_init(shared + Layout::kKFull, 1);
    barrier_init(shared + Layout::kVFull, 1);
    for (int i = 0; i < Traits::kQStages; ++i) {
      barrier_init(shared + Layout::kQFull + 8 * i, 1);
      barrier_init(shared + Layout::kQEmpty + 8 * i, kReaders);
    }
    for (int i = 0; i < Traits::kDOStages; ++i) {
      barrier_init(shared + Layout::kDOFull + 8 * i, 1);
      barrier_init(shared + Layout::kDOEmpty + 8 * i, kReaders);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + Layout::kDQFull + 8 * i, 4);
      barrier_init(shared + Layout::kDQFull + 16 + 8 * i, 4);
      barrier_init(shared + Layout::kDQEmpty + 8 * i, 1);
    }
    barrier_init_fence();
  }
  load_document_ends<Traits>(p, shared + Layout::kDocumentEnds);
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<Traits::kProducerRegisters>();
    if (threadIdx.x == 0) produce_backward<Traits>(p, shared);
    if (threadIdx.x == 32) drain_queries<Traits>(p, shared, 0);
    if (threadIdx.x == 64) drain_queries<Traits>(p, shared, 1);
  } else {
    take_registers<Traits::kConsumerRegisters>();
    BackwardConsumer<Traits> consumer(p, shared, warp / 4 - 1);
    consumer.run();
  }
#endif
}

}  // namespace tracestep::cuda

// dQ of heads wider than 128 on Hopper, see hopper_wide_keys.cuh: a block keeps 128 queries, 64 for
// each of two warpgroups, and walks the keys that they see, the last first. S of the next block of
// keys is multiplied under dQ of this one, and dP under the exponentials.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backends/cuda/attention/hopper_cap.cuh"
#include "backends/cuda/attention/hopper_forward_feed.cuh"
#include "backends/cuda/attention/hopper_mask.cuh"
#include "backends/cuda/attention/hopper_wide_keys.cuh"

namespace tracestep::cuda {

struct WideQueriesParameters : ForwardParameters {  // o: of dQ
  CUtensorMap d_o;
  const float *lse2, *delta;  // [batch * heads][padded_queries]; LSE in log2
  int padded_queries;
  float scale;
};

template <class Traits>
struct WideQueriesLayout {
  static constexpr int kD = Traits::kD, kRows = 128, kStages = 2, kVStages = Traits::kVStages;
  using Q = Tile<kRows, kD>;  // queries of a block; dO, too, and dQ takes Q's place
  using K = Tile<Traits::kN, kD>;
  static constexpr int kQ = 0, kDO = Q::kBytes, kK = 2 * Q::kBytes, kV = kK + kStages * K::kBytes,
                       kEnd = kV + kVStages * K::kBytes;
  static constexpr int kQFull = kEnd, kKFull = kQFull + 8, kKEmpty = kKFull + 8 * kStages,
                       kVFull = kKEmpty + 8 * kStages, kVEmpty = kVFull + 8 * kVStages;
  static constexpr int kBytes = kVEmpty + 8 * kVStages + 1024;
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// --- the producer: one thread loads Q and dO, then the blocks of K and V that rows see -----------
template <class Traits>
__device__ __forceinline__ void produce_wide_queries(const WideQueriesParameters& p,
                                                     std::uint32_t shared,
                                                     const ForwardTile& tile) {
  using Layout = WideQueriesLayout<Traits>;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  const int blocks = key_blocks<Traits>(p, min(tile.row + Layout::kRows, p.queries) - 1);
  const int begin = first_key_block<Traits>(p, tile, blocks), key_head = tile.head / p.group;
  barrier_arrive_expect(shared + Layout::kQFull, 2 * Q::kBytes);
  load_tile<Q>(shared + Layout::kQ, &p.q, shared + Layout::kQFull, tile.row, tile.head, tile.batch);
  load_tile<Q>(shared + Layout::kDO, &p.d_o, shared + Layout::kQFull, tile.row, tile.head,
               tile.batch);
  Ring<Layout::kStages> k;
  Ring<Layout::kVStages> v;
#pragma unroll 1  // few registers have to do
  for (int block = blocks - 1; block >= begin; --block, k.advance(), v.advance()) {
    barrier_wait(shared + Layout::kKEmpty + 8 * k.stage, k.parity ^ 1);
    const std::uint32_t k_full = shared + Layout::kKFull + 8 * k.stage;
    barrier_arrive_expect(k_full, K::kBytes);
    load_tile<K>(shared + Layout::kK + k.stage * K::kBytes, &p.k, k_full, block * Traits::kN,
                 key_head, tile.batch);
    barrier_wait(shared + Layout::kVEmpty + 8 * v.stage, v.parity ^ 1);
    const std::uint32_t v_full = shared + Layout::kVFull + 8 * v.stage;
    barrier_arrive_expect(v_full, K::kBytes);
    load_tile<K>(shared + Layout::kV + v.stage * K::kBytes, &p.v, v_full, block * Traits::kN,
                 key_head, tile.batch);
  }
}

// --- a consumer: one warpgroup -------------------------------------------------------------------
// Computes dQ of its 64 query rows over the blocks of keys that these rows see.
template <class Traits>
class WideQueriesConsumer {
  using Layout = WideQueriesLayout<Traits>;
  using T = typename Traits::T;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  static constexpr int kD = Traits::kD, kN = Traits::kN;

 public:
  __device__ __forceinline__ WideQueriesConsumer(const WideQueriesParameters& parameters,
                                                 std::uint32_t shared_base, int group_index)
      : p_(parameters), shared_(shared_base), group_(group_index) {}

  // Computes the tile's dQ. Both warpgroups walk all blocks of keys that any row of the tile sees.
  __device__ __forceinline__ void run(const ForwardTile& tile) {
    const int first_row = tile.row + group_ * 64;
    const int blocks = key_blocks<Traits>(p_, min(tile.row + Layout::kRows, p_.queries) - 1);
    const int begin = first_key_block<Traits>(p_, tile, blocks);
    const std::int64_t row = std::int64_t{tile.head_of_all} * p_.padded_queries + first_row +
                             thread() / 32 * 16 + thread() % 32 / 4;
    batch_ = tile.batch;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      lse_[r] = p_.lse2[row + 8 * r];
      delta_[r] = p_.delta[row + 8 * r];
    }
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) dq_[i] = 0;
    pin(dq_);
    barrier_wait(shared_ + Layout::kQFull, 0);
    multiply_scores(k_);
    multiply_dp();
    wgmma_wait<1>();
    differentiate<true>(first_row, blocks - 1);
    for (int block = blocks - 2; block >= begin; --block) {
      Ring<Layout::kStages> next = k_;
      next.advance();
      multiply_scores(next);
      multiply_dq();
      multiply_dp();
      wgmma_wait<2>();
      k_ = next;
      differentiate<false>(first_row, block);
    }
    multiply_dq();
    wgmma_wait<0>();
    pin(dq_);
    finish(first_row);
  }

 private:
  // Returns the thread's index in the warpgroup, read from %tid each time, which saves a register.
  static __device__ __forceinline__ int thread() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t & 127;
  }
  __device__ __forceinline__ std::uint32_t rows(int tile) const {
    return recomputed(shared_) + tile + group_ * 64 * Q::kSwizzle;
  }
  template <int kTile>
  __device__ __forceinline__ void multiply(float (&d)[kN / 2], std::uint32_t keys) {
    const std::uint64_t a = Q::along_rows(rows(kTile)), b = K::along_rows(keys);
    forget(d);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i)
      Wgmma<T, kN>::template ss<0, 0>(d, a + Q::along_step(i), b + K::along_step(i), i > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply_scores(const Ring<Layout::kStages>& ring) {
    barrier_wait(shared_ + Layout::kKFull + 8 * ring.stage, ring.parity);
    multiply<Layout::kQ>(s_, recomputed(shared_) + Layout::kK + ring.stage * K::kBytes);
  }
  __device__ __forceinline__ void multiply_dp() {
    barrier_wait(shared_ + Layout::kVFull + 8 * v_.stage, v_.parity);
    multiply<Layout::kDO>(dp_, recomputed(shared_) + Layout::kV + v_.stage * K::kBytes);
  }
  __device__ __forceinline__ void multiply_dq() {
    const std::uint64_t k = K::down_rows(recomputed(shared_) + Layout::kK + k_.stage * K::kBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kN / 16; ++i)
      Wgmma<T, kD>::template rs<1>(dq_, ds16_ + 4 * i, k + K::down_step(i), 1);
    wgmma_commit();
  }

  // Computes dS = P (dP - delta), P = exp2(scale S - LSE), times 1 - t^2 if capped. The scores are
  // in s_; in flight are dP, and dQ of the block before, whose K is free once dQ is done.
  template <bool kFirst>
  __device__ __forceinline__ void differentiate(int first_row, int block) {
    pin(s_);
    if constexpr (Traits::kCapped) take_tangents(s_, p_.to_tangent);
    const auto documents = document_sight<Traits>(p_.documents, batch_, p_.queries);
    mask_scores<Traits, kN>(s_, first_row, block * kN, p_.keys, p_.offset, p_.window, documents,
                            thread());
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      const float slope = Traits::kCapped ? slope_of_cap(s_[i]) : 1.0F;
      s_[i] = slope * exp2_fast(fmaf(s_[i], p_.scale_log2, -lse_[i / 2 % 2]));
    }
    wgmma_wait<0>();
    pin(dq_);
    pin(dp_);
    pin(ds16_);
    if (!kFirst) barrier_arrive(shared_ + Layout::kKEmpty + 8 * (k_.stage ^ 1));
    barrier_arrive(shared_ + Layout::kVEmpty + 8 * v_.stage);
    v_.advance();
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) {
      const float d = delta_[i % 2];
      ds16_[i] = pack<T>(s_[2 * i] * (dp_[2 * i] - d), s_[2 * i + 1] * (dp_[2 * i + 1] - d));
    }
  }

  __device__ __forceinline__ void finish(int first_row) {
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) dq_[i] *= p_.scale;
    named_sync(1 + group_, 128);
    store_fragment<T, Q, kD / 8>(shared_ + Layout::kQ, dq_, group_ * 64, thread());
    fence_async();
    named_sync(1 + group_, 128);
    if (thread() == 0) {
      const ForwardTile tile = forward_tile(p_, static_cast<int>(blockIdx.x), Layout::kRows);
      if (first_row < p_.queries)
        store_tile<Q>(&p_.o, rows(Layout::kQ), first_row, tile.head, tile.batch);
      bulk_commit();
      bulk_wait_read<0>();
    }
  }

  const WideQueriesParameters& p_;
  std::uint32_t shared_;
  int group_;
  int batch_ = 0;             // read by windowed kernels
  Ring<Layout::kStages> k_;   // the stage of the keys whose dQ is next
  Ring<Layout::kVStages> v_;  // the stage of the values whose dP is next
  float lse_[2], delta_[2];
  float s_[kN / 2], dp_[kN / 2], dq_[kD / 2];
  std::uint32_t ds16_[kN / 4];
};

template <class Traits>
__global__ void __launch_bounds__(384, 1)
    hopper_wide_queries_kernel(Predecessors before,
                               const __grid_constant__ WideQueriesParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.wait();
  using Layout = WideQueriesLayout<Traits>;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.d_o, &p.o}) prefetch_map(map);
    barrier_init(shared + Layout::kQFull, 1);
    for (int i = 0; i < Layout::kStages; ++i) {
      barrier_init(shared + Layout::kKFull + 8 * i, 1);
      barrier_init(shared + Layout::kKEmpty + 8 * i, 256);
    }
    for (int i = 0; i < Layout::kVStages; ++i) {
      barrier_init(shared + Layout::kVFull + 8 * i, 1);
      barrier_init(shared + Layout::kVEmpty + 8 * i, 256);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const ForwardTile tile = forward_tile(p, static_cast<int>(blockIdx.x), Layout::kRows);
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<24>();
    if (threadIdx.x == 0) produce_wide_queries<Traits>(p, shared, tile);
  } else {
    take_registers<240>();
    WideQueriesConsumer<Traits>(p, shared, warp / 4 - 1).run(tile);
  }
#endif
}

}  // namespace tracestep::cuda

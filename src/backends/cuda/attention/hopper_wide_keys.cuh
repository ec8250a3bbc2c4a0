// Attention backward on Hopper of heads wider than 128, whose dK and dV do not fit in a warpgroup's
// registers together. Two kernels, this one for dK and dV, hopper_wide_queries.cuh for dQ: seven
// products instead of five, but nothing is added across blocks, so there are no sums of dQ in
// memory and no order to keep. Here a block keeps 64 keys and walks the queries that see them. One
// warpgroup multiplies S' = K Q' and dV += P' dO; it leaves P' in shared memory for the other,
// which multiplies dP' = V dO' and dK += dS' Q.
// Sources as of hopper_backward.cuh.
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

template <class TypeOf, int kD_, bool kCausal_>
struct WideBackwardTraits {
  using T = TypeOf;
  static constexpr int kD = kD_, kM = 64, kN = 64;  // head width; queries and keys of a block
  static constexpr bool kCausal = kCausal_, kWindowed = false, kCapped = false, kDocuments = false;
  static constexpr bool kGrouped = true;  // one head of queries is a group of one
  static constexpr int kQStages = 2, kDOStages = 2;
  static constexpr int kVStages = kD_ > 192 ? 1 : 2;  // blocks of V in flight, in the kernel for dQ
};

template <class Traits>
struct WideKeysLayout {
  static constexpr int kD = Traits::kD, kM = Traits::kM, kN = Traits::kN, kThreads = 384;
  using Q = Tile<kM, kD>;                           // queries of a block; dO, too
  using K = Tile<kN, kD>;                           // keys of a block; V, dK and dV, too
  static constexpr int kRowBytes = kM * 4;          // LSE or delta of a block
  static constexpr int kPBytes = kM / 2 * 128 * 4;  // the fragments of P' of a warpgroup
  static constexpr int kK = 0, kV = K::kBytes, kQ = kV + K::kBytes,
                       kDO = kQ + Traits::kQStages * Q::kBytes,
                       kP = kDO + Traits::kDOStages * Q::kBytes, kLse = kP + 2 * kPBytes,
                       kDelta = kLse + Traits::kQStages * kRowBytes,
                       kEnd = kDelta + Traits::kDOStages * kRowBytes;
  static constexpr int kKFull = kEnd, kVFull = kKFull + 8, kQFull = kVFull + 8,
                       kQEmpty = kQFull + 8 * Traits::kQStages,
                       kDOFull = kQEmpty + 8 * Traits::kQStages,
                       kDOEmpty = kDOFull + 8 * Traits::kDOStages,
                       kPFull = kDOEmpty + 8 * Traits::kDOStages, kPEmpty = kPFull + 16;
  static constexpr int kDocumentEnds = kPEmpty + 16;  // see load_document_ends()
  static constexpr int kBytes = kDocumentEnds + (Traits::kDocuments ? 4 * kN : 0) + 1024;
  static_assert(Q::kBytes % 1024 == 0 && kPBytes % 1024 == 0);
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// One warpgroup, which sums up dV (kValues) or dK. It keeps a tile of K or V, multiplies it with Q
// or dO (the "scored" operand), and P' or dS', made of that product, with the other ("summed") one.
template <class Traits, bool kValues>
class WideKeysConsumer {
  using Layout = WideKeysLayout<Traits>;
  using T = typename Traits::T;
  using Q = typename Layout::Q;
  using K = typename Layout::K;
  static constexpr int kD = Traits::kD, kM = Traits::kM;
  static constexpr int kKept = kValues ? Layout::kK : Layout::kV;
  static constexpr int kScored = kValues ? Layout::kQ : Layout::kDO,
                       kScoredFull = kValues ? Layout::kQFull : Layout::kDOFull,
                       kScoredEmpty = kValues ? Layout::kQEmpty : Layout::kDOEmpty,
                       kSummed = kValues ? Layout::kDO : Layout::kQ,
                       kSummedFull = kValues ? Layout::kDOFull : Layout::kQFull,
                       kSummedEmpty = kValues ? Layout::kDOEmpty : Layout::kQEmpty;
  static_assert(Traits::kQStages == 2 && Traits::kDOStages == 2);

 public:
  __device__ __forceinline__ WideKeysConsumer(const BackwardParameters& parameters,
                                              std::uint32_t shared_base)
      : p_(parameters), shared_(shared_base), thread_(static_cast<int>(threadIdx.x) & 127) {}

  __device__ __forceinline__ void run() {
    const BackwardTile<Traits> tile(p_);
    BackwardWalk<Traits> walk(tile, p_);
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) sum_[i] = 0;
    pin(sum_);
    if (walk.left > 0) {
      barrier_wait(shared_ + (kValues ? Layout::kKFull : Layout::kVFull), 0);
      multiply_scores(Ring<2>());
      wgmma_wait<0>();
      for (bool is_first = true; walk.left > 0; is_first = false) {
        step(tile, walk, is_first);
        ring_.advance();
      }
      wgmma_wait<0>();
      pin(sum_);
    }
    finish(tile);
  }

 private:
  __device__ __forceinline__ void multiply_scores(const Ring<2>& ring) {
    barrier_wait(shared_ + kScoredFull + 8 * ring.stage, ring.parity);
    const std::uint64_t kept = K::along_rows(recomputed(shared_) + kKept);
    const std::uint64_t scored = Q::along_rows(shared_ + kScored + ring.stage * Q::kBytes);
    forget(s_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i)
      Wgmma<T, kM>::template ss<0, 0>(s_, kept + K::along_step(i), scored + Q::along_step(i),
                                      i > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply_sum() {
    barrier_wait(shared_ + kSummedFull + 8 * ring_.stage, ring_.parity);
    const std::uint64_t summed = Q::down_rows(shared_ + kSummed + ring_.stage * Q::kBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
      Wgmma<T, kD>::template rs<1>(sum_, rounded_ + 4 * i, summed + Q::down_step(i), 1);
    wgmma_commit();
  }

  // Does the step for a block of queries, whose scores are in s_; the last sum may be in flight.
  __device__ __forceinline__ void step(const BackwardTile<Traits>& tile, BackwardWalk<Traits>& walk,
                                       bool is_first) {
    pin(s_);
    if constexpr (kValues)
      exponentiate(tile.first_key - p_.offset - walk.block * kM, p_.keys - tile.first_key);
    else
      differentiate();
    barrier_arrive(shared_ + kScoredEmpty + 8 * ring_.stage);
    wgmma_wait<0>();
    pin(sum_);
    pin(rounded_);
    if (!is_first) barrier_arrive(shared_ + kSummedEmpty + 8 * (ring_.stage ^ 1));
#pragma unroll
    for (int i = 0; i < kM / 4; ++i) rounded_[i] = pack<T>(s_[2 * i], s_[2 * i + 1]);
    walk.advance(tile, p_);
    if (walk.left > 0) {
      Ring<2> next = ring_;
      next.advance();
      multiply_scores(next);
      multiply_sum();
      wgmma_wait<1>();
    } else {
      multiply_sum();
    }
  }

  __device__ __forceinline__ std::uint32_t fragment(int j) const {
    return shared_ + Layout::kP + ring_.stage * Layout::kPBytes + (j * 128 + thread_) * 16;
  }
  // Computes P' = exp2(scale S' - LSE), and stores it for the other warpgroup: times 1 - t^2 where
  // scores are capped.
  __device__ __forceinline__ void exponentiate(int distance, int keys_left) {
    if constexpr (Traits::kCapped) take_tangents(s_, p_.to_tangent);
    mask_transposed<Traits, kM>(s_, distance, keys_left, p_.window, thread_);
    if constexpr (Traits::kDocuments)
      mask_document_ends<kM>(s_, distance, shared_ + Layout::kDocumentEnds, thread_);
    barrier_wait(shared_ + Layout::kPEmpty + 8 * ring_.stage, ring_.parity ^ 1);
    const std::uint32_t lse =
        shared_ + Layout::kLse + ring_.stage * Layout::kRowBytes + thread_ % 4 * 8;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 l = load_float2(lse + 32 * j);
      float given[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& s = s_[4 * j + e];
        const float slope = Traits::kCapped ? slope_of_cap(s) : 1.0F;
        s = exp2_fast(fmaf(s, p_.scale_log2, e % 2 == 0 ? -l.x : -l.y));
        given[e] = s * slope;
      }
      store_float4(fragment(j), given[0], given[1], given[2], given[3]);
    }
    barrier_arrive(shared_ + Layout::kPFull + 8 * ring_.stage);
  }
  // Computes dS' = P' (dP' - delta).
  __device__ __forceinline__ void differentiate() {
    barrier_wait(shared_ + Layout::kPFull + 8 * ring_.stage, ring_.parity);
    const std::uint32_t delta =
        shared_ + Layout::kDelta + ring_.stage * Layout::kRowBytes + thread_ % 4 * 8;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 d = load_float2(delta + 32 * j);
      const float4 x = load_float4(fragment(j));
      float* s = s_ + 4 * j;
      s[0] = x.x * (s[0] - d.x);
      s[1] = x.y * (s[1] - d.y);
      s[2] = x.z * (s[2] - d.x);
      s[3] = x.w * (s[3] - d.y);
    }
    barrier_arrive(shared_ + Layout::kPEmpty + 8 * ring_.stage);
  }

  // Stores dV or dK by way of the tile of K or V, which no other warpgroup has read.
  __device__ __forceinline__ void finish(const BackwardTile<Traits>& tile) {
    const float factor = kValues ? 1.0F : p_.scale;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) sum_[i] *= factor;
    named_sync(kValues ? 1 : 2, 128);
    store_fragment<T, K, kD / 8>(shared_ + kKept, sum_, 0, thread_);
    fence_async();
    named_sync(kValues ? 1 : 2, 128);
    if (thread_ == 0) {
      if (kValues ? p_.has_dv : p_.has_dk)
        store_tile<K>(kValues ? &p_.dv : &p_.dk, shared_ + kKept, tile.first_key, tile.head,
                      tile.batch);
      bulk_commit();
      bulk_wait_read<0>();
    }
  }

  const BackwardParameters& p_;
  std::uint32_t shared_;
  int thread_;                     // the thread's number in its warpgroup
  Ring<2> ring_;                   // the stages of Q, dO and P'
  float s_[kM / 2];                // S', then P'; or dP', then dS'
  float sum_[kD / 2];              // dV or dK
  std::uint32_t rounded_[kM / 4];  // P' or dS' of the step whose sum is made
};

template <class Traits>
__global__ void __launch_bounds__(384, 1)
    hopper_wide_keys_kernel(Predecessors before, const __grid_constant__ BackwardParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.wait();
  using Layout = WideKeysLayout<Traits>;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.d_o, &p.dk, &p.dv}) prefetch_map(map);
    barrier_init(shared + Layout::kKFull, 1);
    barrier_init(shared + Layout::kVFull, 1);
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + Layout::kQFull + 8 * i, 1);
      barrier_init(shared + Layout::kDOFull + 8 * i, 1);
      barrier_init(shared + Layout::kQEmpty + 8 * i, 256);
      barrier_init(shared + Layout::kDOEmpty + 8 * i, 256);
      barrier_init(shared + Layout::kPFull + 8 * i, 128);
      barrier_init(shared + Layout::kPEmpty + 8 * i, 128);
    }
    barrier_init_fence();
  }
  load_document_ends<Traits>(p, shared + Layout::kDocumentEnds);
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<24>();
    if (threadIdx.x == 0) produce_backward<Traits, Layout>(p, shared);
  } else {
    take_registers<240>();
    if (warp < 8)
      WideKeysConsumer<Traits, true>(p, shared).run();
    else
      WideKeysConsumer<Traits, false>(p, shared).run();
  }
#endif
}

}  // namespace tracestep::cuda

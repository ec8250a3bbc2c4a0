// Forward where there are few tiles of queries: the blocks of a cluster divide a tile's keys, each
// takes every parts-th block of them, and merge what they have found. Each leaves its sums of P V
// and the state of its softmax in shared memory; then each makes some rows of the result from those
// of all, in the order of ranks, so that bits are the same every run. Source: Dao et al. 2023,
// "Flash-Decoding", the merge by log-sum-exp.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/hopper_forward_feed.cuh"
#include "backends/cuda/attention/hopper_softmax.cuh"

namespace tracestep::cuda {

// Adds to a kernel's traits that the blocks of a cluster divide a tile's keys, for few tiles.
template <class Traits>
struct Divided : Traits {
  static constexpr bool kDivided = true;
  static constexpr bool kTurns = false;  // a warpgroup may have no block where the other has one
};

// How the memory of K and V is used once both have been read: float32 sums in the order of the
// threads that hold them, then RowSoftmax::state() of each thread's rows.
template <class Traits>
struct PartsLayout {
  using Layout = ForwardLayout<Traits>;
  static constexpr int kMost = 8;                               // parts
  static constexpr int kWarps = 8, kChunkBytes = kWarps * 512;  // 8 columns of all threads
  static constexpr int kSums = Layout::kK, kStates = kSums + Traits::kD / 8 * kChunkBytes;
  static_assert(Traits::kGroups == 2 && Traits::kTeams == 1);
  static_assert(kStates + kChunkBytes <= Layout::kO, "no room");
};

// The factors of the parts' sums in the result, for a thread's two rows, and the rows' log-sum-exp.
template <class Traits>
struct PartFactors {
  float factor[PartsLayout<Traits>::kMost][2];
  float lse[2];
  __device__ __forceinline__ PartFactors(std::uint32_t states, int parts, float scale_log2) {
    float4 state[PartsLayout<Traits>::kMost];
    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
#pragma unroll
    for (int i = 0; i < PartsLayout<Traits>::kMost; ++i) {
      if (i >= parts) break;
      state[i] = load_float4_in_cluster(address_in_cluster(states, i));
      largest[0] = fmaxf(largest[0], state[i].x);
      largest[1] = fmaxf(largest[1], state[i].y);
    }
#pragma unroll
    for (int i = 0; i < PartsLayout<Traits>::kMost; ++i) {
      if (i >= parts) break;
      factor[i][0] = weight(state[i].x, largest[0], scale_log2);
      factor[i][1] = weight(state[i].y, largest[1], scale_log2);
      sum[0] = fmaf(factor[i][0], state[i].z, sum[0]);
      sum[1] = fmaf(factor[i][1], state[i].w, sum[1]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float whole = sum[r] == 0 ? 0.0F : 1.0F / sum[r];  // no key is seen: o = 0
#pragma unroll
      for (int i = 0; i < PartsLayout<Traits>::kMost; ++i) {
        if (i < parts) factor[i][r] *= whole;
      }
      lse[r] = (largest[r] * scale_log2 + log2f(sum[r])) * 0.693147181F;
    }
  }

 private:
  static __device__ __forceinline__ float weight(float maximum, float largest, float scale_log2) {
    return maximum == -INFINITY ? 0.0F : exp2_fast((maximum - largest) * scale_log2);
  }
};

// Adds up the parts' sums and writes o and lse; all consumers of a cluster call it. A block writes
// the rows that 8 / parts of the eight warps have; all its warps divide the columns of these. `o`:
// this block's sums; `state`: RowSoftmax::state().
template <class Traits, int K>
__device__ __forceinline__ void merge_parts(const ForwardParameters& p, const ForwardTile& tile,
                                            std::uint32_t shared, int group, int thread,
                                            const float (&o)[K], float4 state) {
  using Parts = PartsLayout<Traits>;
  using T = typename Traits::T;
  const int warp = group * 4 + thread / 32, lane = thread % 32;
  const std::uint32_t own = shared + (warp * 32 + lane) * 16;
  named_sync(1, 256);  // both warpgroups have finished with K and V
#pragma unroll
  for (int j = 0; j < K / 4; ++j)
    store_float4(own + Parts::kSums + j * Parts::kChunkBytes, o[4 * j], o[4 * j + 1], o[4 * j + 2],
                 o[4 * j + 3]);
  store_float4(own + Parts::kStates, state.x, state.y, state.z, state.w);
  cluster_sync();
  const int taken = cluster_rank() * (Parts::kWarps / p.parts) + warp / p.parts;  // whose rows
  const std::uint32_t source = shared + (taken * 32 + lane) * 16;
  const PartFactors<Traits> of(source + Parts::kStates, p.parts, p.scale_log2);
  const int row = tile.row + taken * 16 + lane / 4;
  if (p.lse != nullptr && warp % p.parts == 0 && lane % 4 == 0) {
    float* lse = p.lse + std::int64_t{tile.head_of_all} * p.queries;
    if (row < p.queries) lse[row] = of.lse[0];
    if (row + 8 < p.queries) lse[row + 8] = of.lse[1];
  }
  T* out = static_cast<T*>(p.o_data) + tile.batch * p.o_strides.batch +
           tile.head * p.o_strides.head + row * p.o_strides.row + lane % 4 * 2;
  for (int j = warp % p.parts; p.o_data != nullptr && 8 * j < p.width; j += p.parts) {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < Parts::kMost; ++i) {
      if (i >= p.parts) break;
      const float4 x = load_float4_in_cluster(
          address_in_cluster(source + Parts::kSums + j * Parts::kChunkBytes, i));
      sum[0] = fmaf(of.factor[i][0], x.x, sum[0]);
      sum[1] = fmaf(of.factor[i][0], x.y, sum[1]);
      sum[2] = fmaf(of.factor[i][1], x.z, sum[2]);
      sum[3] = fmaf(of.factor[i][1], x.w, sum[3]);
    }
    if (row < p.queries) *reinterpret_cast<std::uint32_t*>(out + 8 * j) = pack<T>(sum[0], sum[1]);
    if (row + 8 < p.queries)
      *reinterpret_cast<std::uint32_t*>(out + 8 * j + 8 * p.o_strides.row) =
          pack<T>(sum[2], sum[3]);
  }
  __syncwarp();
  cluster_sync();  // until then nobody leaves
}

}  // namespace tracestep::cuda

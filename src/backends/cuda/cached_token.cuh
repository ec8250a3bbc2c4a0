// cached_attention of one new token, whose time is the latency of memory: all that a block reads is
// on its way at once, wherever the token is. Blocks read equal parts of a head's cache, as far as
// it is filled; few parts are one cluster (PTX ISA 8.x, "barrier.cluster", "mapa"), which joins
// them.
#pragma once

#include "backends/cuda/cached_attention.cuh"
#include "backends/cuda/maps/operand.cuh"

namespace tracestep::cuda::cached {

// Brings the keys and values that a block will read into the L2 cache. The kernel before may still
// write the position, so an old position may be read here, and wrong lines be brought; that costs
// time but changes no result, since nothing is kept here.
template <class T>
__device__ void prefetch_part(const CachedArgs& a, std::int64_t head, int begin, int end) {
  // The elements of a cache line, and the most lines that a thread brings.
  constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kMostLines = 4;
  if (a.position.dtype != DType::kI64) return;
  std::int64_t position;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(position) : "l"(a.position.data));
  const std::int64_t first = (head * a.keys + begin) * a.width;
  const std::int64_t count = (::min(std::int64_t{end}, position) - begin) * a.width;
  for (int line = 0; line < kMostLines; ++line) {
    const std::int64_t at = (std::int64_t{line} * kWarps * kWarp + threadIdx.x) * kLine;
    if (at >= count) return;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const T*>(a.k_cache) + first + at));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const T*>(a.v_cache) + first + at));
  }
}

__device__ inline void sync_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}
// Returns the float that block `rank` of the cluster has at this address in its shared memory.
__device__ inline float of_block([[maybe_unused]] const float* place, [[maybe_unused]] int rank) {
  float x = 0.0f;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
#endif
  return x;
}

// Two neighbouring elements that are rotated together, and the cosine and sine of their angle.
template <class T>
struct PairOf {
  RowPack<T, 2> both;
  float cos = 1.0f, sin = 0.0f;

  __device__ void load(const CachedArgs& a, const T* row, int pair) {
    both = RowPack<T, 2>::load(row + 2 * pair);
    if (2 * pair >= a.turned) return;
    AnyFloat angles;
    angles.dtype = a.angle_dtype;
    angles.data = a.cos;
    cos = angles.at(pair);
    angles.data = a.sin;
    sin = angles.at(pair);
  }
  __device__ float2 turned(const CachedArgs& a, int pair) const {
    float x[2];
    both.floats(x);
    if (2 * pair < a.turned) turn_pair<T>(x[0], x[1], cos, sin);
    return make_float2(x[0], x[1]);
  }
};

template <class T, int kLanes, int kRows>
struct Token {
  static constexpr int kWidth = kLanes * kEight, kGroups = kWarp / kLanes;
  static constexpr int kAtOnce = kWarps * kGroups;  // keys at a time
  static constexpr int kAhead = static_cast<int>(CachedAttentionPlan::kTokenPartKeys) / kAtOnce;

  struct Shared {
    float q[kRows][kWidth], key[kWidth], value[kWidth];  // the new token's, turned
    float sum[kWarps][kRows][kWidth], top[kWarps][kRows], total[kWarps][kRows];
    float block_sum[kRows][kWidth], block_top[kRows], block_total[kRows];
  };

  const CachedArgs& a;
  Shared& shared;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int d = lane % kLanes * kEight, slot = warp * kGroups + lane / kLanes;
  const int batch = static_cast<int>(blockIdx.z);
  const int key_head = static_cast<int>(blockIdx.y) / a.row_blocks;
  const int first_row = static_cast<int>(blockIdx.y) % a.row_blocks * kRows;
  const std::int64_t head = std::int64_t{batch} * a.key_heads + key_head;
  const int begin = static_cast<int>(blockIdx.x) * a.part_keys;
  const int end = ::min(begin + a.part_keys, a.keys);
  RowPack<T> keys[kAhead][kEight / kPack<T>], values[kAhead][kEight / kPack<T>];
  Running running[kRows];

  __device__ Token(const CachedArgs& args, Shared& memory) : a(args), shared(memory) {}

  __device__ const T* q_row(int r) const {
    const RowAt at(a, key_head, ::min(first_row + r, a.rows() - 1));
    return static_cast<const T*>(a.q) + a.q_strides.at(batch, at.head, 0);
  }

  // Loads the cached keys and values base + u · kAtOnce + slot, whether or not they are filled.
  __device__ void load_cached(int base) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int j = ::min(base + u * kAtOnce + slot, a.keys - 1);
      const std::int64_t row = (head * a.keys + j) * a.width;
#pragma unroll
      for (int p = 0; p < kEight / kPack<T>; ++p) {
        const int at = ::min(d + p * kPack<T>, a.width - kPack<T>);
        keys[u][p] = RowPack<T>::load(static_cast<const T*>(a.k_cache) + row + at);
        values[u][p] = RowPack<T>::load(static_cast<const T*>(a.v_cache) + row + at);
      }
    }
  }

  // Loads the token's q, k and v to shared memory, q and k rotated, and returns its position.
  __device__ std::int64_t load_token() {
    constexpr int kPairs = kWidth / 2, kThreads = kWarps * kWarp;
    constexpr int kCount = ((kRows + 1) * kPairs + kThreads - 1) / kThreads;
    const std::int64_t position = a.position.at(0);
    const T* const k = static_cast<const T*>(a.k) + a.k_strides.at(batch, key_head, 0);
    const T* const v = static_cast<const T*>(a.v) + a.v_strides.at(batch, key_head, 0);
    PairOf<T> pairs[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int i = thread + n * kThreads, r = i / kPairs, pair = i % kPairs;
      if (r > kRows || 2 * pair >= a.width) continue;
      pairs[n].load(a, r == kRows ? k : q_row(r), pair);
    }
    float value = 0.0f;
    if (thread < a.width) value = to_float(v[thread]);
    const float scale = a.cap > 0.0f ? a.scale : a.scale * kLog2E;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int i = thread + n * kThreads, r = i / kPairs, pair = i % kPairs;
      if (r > kRows) continue;
      const float2 x = 2 * pair < a.width ? pairs[n].turned(a, pair) : make_float2(0.0f, 0.0f);
      float* const to = r == kRows ? shared.key : shared.q[r];
      const float factor = r == kRows ? 1.0f : scale;
      to[2 * pair] = x.x * factor;
      to[2 * pair + 1] = x.y * factor;
    }
    if (thread < kWidth) shared.value[thread] = value;
    __syncthreads();
    return position;
  }

  // Returns the key's score for query row `r`, capped, summed over the lanes that share the key.
  __device__ float score(int r, const float (&key)[kEight]) const {
    const auto* const q = reinterpret_cast<const float4*>(&shared.q[r][d]);
    const float4 low = q[0], high = q[1];
    float dot = low.x * key[0];
    dot = fmaf(low.y, key[1], dot);
    dot = fmaf(low.z, key[2], dot);
    dot = fmaf(low.w, key[3], dot);
    dot = fmaf(high.x, key[4], dot);
    dot = fmaf(high.y, key[5], dot);
    dot = fmaf(high.z, key[6], dot);
    dot = fmaf(high.w, key[7], dot);
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(~0u, dot, offset);
    return a.cap > 0.0f ? a.cap * tanhf(dot / a.cap) * kLog2E : dot;
  }

  __device__ static void floats_of(const RowPack<T> (&packs)[kEight / kPack<T>],
                                   float (&out)[kEight]) {
#pragma unroll
    for (int p = 0; p < kEight / kPack<T>; ++p) {
      float part[kPack<T>];
      packs[p].floats(part);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) out[p * kPack<T> + i] = part[i];
    }
  }

  // Adds the loaded keys and values to the running sums, except those outside [low, high).
  __device__ void see_cached(int base, int low, int high) {
    float scores[kRows][kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int j = base + u * kAtOnce + slot;
      float key[kEight];
      floats_of(keys[u], key);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float dot = score(r, key);
        scores[r][u] = j >= low && j < high ? dot : -INFINITY;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float top = scores[r][0];
#pragma unroll
      for (int u = 1; u < kAhead; ++u) top = fmaxf(top, scores[r][u]);
      running[r].scale(running[r].raise(top));
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      float value[kEight];
      floats_of(values[u], value);
#pragma unroll
      for (int r = 0; r < kRows; ++r) running[r].add(scores[r][u], value);
    }
  }

  // Adds the token's own key and value to the running sums of all rows. One warp calls this.
  __device__ void see_own() {
    float key[kEight], value[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      key[i] = shared.key[d + i];
      value[i] = shared.value[d + i];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float dot = score(r, key), mine = lane < kLanes ? dot : -INFINITY;
      running[r].scale(running[r].raise(mine));
      running[r].add(mine, value);
    }
  }

  __device__ void keep_own(int position) const {
    const std::int64_t at = (head * a.keys + position) * a.width + thread;
    if (thread >= a.width) return;
    if (a.kept_k != nullptr) static_cast<T*>(a.kept_k)[at] = from_float<T>(shared.key[thread]);
    if (a.kept_v != nullptr) static_cast<T*>(a.kept_v)[at] = from_float<T>(shared.value[thread]);
  }

  __device__ void join_warps() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int offset = kLanes; offset < kWarp; offset *= 2) running[r].join_lane(offset);
      if (lane >= kLanes) continue;
#pragma unroll
      for (int i = 0; i < kEight; ++i) shared.sum[warp][r][d + i] = running[r].sum[i];
      if (lane != 0) continue;
      shared.top[warp][r] = running[r].top;
      shared.total[warp][r] = running[r].total;
    }
    __syncthreads();
  }

  // Calls f(row, element) for one element per thread in every `step`-th round, from round `from`.
  template <class F>
  __device__ void for_elements(int from, int step, F f) const {
    for (int i = from * kWarps * kWarp + thread; i < kRows * kWidth; i += step * kWarps * kWarp) {
      const int r = i / kWidth, element = i % kWidth;
      if (first_row + r < a.rows() && element < a.width) f(r, element);
    }
  }
  __device__ std::int64_t row_of(int r) const {
    return std::int64_t{batch} * a.heads + key_head * a.group + first_row + r;
  }
  __device__ void put(int r, int element, float sum, float total) const {
    if (a.y == nullptr) return;
    static_cast<T*>(a.y)[row_of(r) * a.width + element] = from_float<T>(sum / total);
  }

  __device__ void store() {
    for_elements(0, 1, [&](int r, int element) {
      float top = -INFINITY, sum = 0.0f, total = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared.top[w][r]);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float factor =
            shared.top[w][r] == -INFINITY ? 0.0f : fast_exp2(shared.top[w][r] - top);
        sum = fmaf(factor, shared.sum[w][r][element], sum);
        total = fmaf(factor, shared.total[w][r], total);
      }
      if (a.parts == 1) return put(r, element, sum, total);
      if (a.is_cluster) {
        shared.block_sum[r][element] = sum;
        if (element == 0) shared.block_top[r] = top;
        if (element == 0) shared.block_total[r] = total;
        return;
      }
      const std::int64_t part = row_of(r) * a.parts + blockIdx.x;
      a.sums[part * a.width + element] = sum;
      if (element == 0) a.maxima[part] = make_float2(top, total);
    });
    if (a.parts > 1 && a.is_cluster) join_cluster();
  }

  // Joins the running sums of a cluster's blocks; each block joins a share of the elements.
  __device__ void join_cluster() {
    constexpr int kMost = static_cast<int>(CachedAttentionPlan::kMostOfCluster);
    sync_cluster();
    for_elements(static_cast<int>(blockIdx.x), a.parts, [&](int r, int element) {
      float tops[kMost], sums[kMost], totals[kMost], top = -INFINITY;
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        const int from = ::min(p, a.parts - 1);
        tops[p] = of_block(&shared.block_top[r], from);
        sums[p] = of_block(&shared.block_sum[r][element], from);
        totals[p] = of_block(&shared.block_total[r], from);
        top = fmaxf(top, tops[p]);
      }
      float sum = 0.0f, total = 0.0f;
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        const bool is_seen = p < a.parts && tops[p] != -INFINITY;
        const float factor = is_seen ? fast_exp2(tops[p] - top) : 0.0f;
        sum = fmaf(factor, sums[p], sum);
        total = fmaf(factor, totals[p], total);
      }
      put(r, element, sum, total);
    });
    sync_cluster();  // shared memory stays until all have read it
  }
};

template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kWarps* kWarp)
    cached_token_kernel(Predecessors before, CachedArgs a) {
  before.let_next_begin();
  using Block = Token<T, kLanes, kRows>;
  __shared__ __align__(16) typename Block::Shared shared;
  Block block(a, shared);
  prefetch_part<T>(a, block.head, block.begin, block.end);
  before.wait();
  block.load_cached(block.begin);
  const std::int64_t position = checked_index(block.load_token(), std::int64_t{a.keys}, a.faults);
  if (position == kNoIndex) return;  // in all blocks
  const auto own = static_cast<int>(position);
  const int high = ::min(block.end, own);
  const int low = a.window == 0 ? block.begin : ::max(block.begin, own + 1 - a.window);
  for (int base = block.begin; base < high; base += Block::kAhead * Block::kAtOnce) {
    if (base != block.begin) block.load_cached(base);
    block.see_cached(base, low, high);
  }
  if (own >= block.begin && own < block.end) {
    if (block.warp == kWarps - 1) block.see_own();
    if (block.first_row == 0) block.keep_own(own);
  }
  block.join_warps();
  block.store();
}

}  // namespace tracestep::cuda::cached

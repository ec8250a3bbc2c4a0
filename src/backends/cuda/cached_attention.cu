// cached_attention: each block reads a part of one head's keys and values once, for up to eight
// queries; several lanes share a key. New keys are turned where they are read, so no block waits
// for another; the block of a head's first queries writes them. Parts are joined in order by a
// second kernel. A single token has a kernel of its own (cached_token.cuh).
#include "backends/cuda/cached_attention.cuh"

#include "backends/cuda/cached_token.cuh"
#include "backends/cuda/kernels.h"

namespace tracestep::cuda {
namespace {

using namespace cached;

constexpr int kHopper = 90;

// The running softmaxes of all warps of a block, in shared memory, where store_joined() joins them.
template <int kLanes, int kRows>
struct Joined {
  float sum[kWarps][kRows][kLanes * kEight];
  float top[kWarps][kRows], total[kWarps][kRows];
};

template <class T, int kLanes, int kRows>
__device__ void store_joined(const CachedArgs& a, const Joined<kLanes, kRows>& all, int batch,
                             int key_head, int first_row) {
  constexpr int kWidth = kLanes * kEight;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kWidth; i += kWarps * kWarp) {
    const int r = i / kWidth, d = i % kWidth;
    const RowAt at(a, key_head, first_row + r);
    if (!at.is_there || d >= a.width) continue;
    float top = -INFINITY, sum = 0.0f, total = 0.0f;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, all.top[w][r]);
    for (int w = 0; w < kWarps; ++w) {
      const float factor = all.top[w][r] == -INFINITY ? 0.0f : fast_exp2(all.top[w][r] - top);
      sum = fmaf(factor, all.sum[w][r][d], sum);
      total = fmaf(factor, all.total[w][r], total);
    }
    const std::int64_t token = std::int64_t{batch} * a.queries + at.query;
    const std::int64_t row = token * a.heads + at.head;
    if (a.parts == 1 && a.y != nullptr) {
      static_cast<T*>(a.y)[row * a.width + d] = from_float<T>(sum / total);
    }
    if (a.parts == 1) continue;
    const std::int64_t part = row * a.parts + blockIdx.x;
    a.sums[part * a.width + d] = sum;
    if (d == 0) a.maxima[part] = make_float2(top, total);
  }
}

template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kWarps* kWarp)
    cached_attention_kernel(Predecessors before, CachedArgs a) {
  before.wait();
  constexpr int kGroups = kWarp / kLanes, kAhead = 4;  // keys of a warp at a time, and loads ahead
  __shared__ Joined<kLanes, kRows> joined;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int key_head = static_cast<int>(blockIdx.y) / a.row_blocks;
  const int first_row = static_cast<int>(blockIdx.y) % a.row_blocks * kRows;
  const int batch = static_cast<int>(blockIdx.z), d = lane % kLanes * kEight;
  const std::int64_t asked = a.position.at(0);  // on its way while queries are read
  float q[kRows][kEight];
  Running running[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const RowAt at(a, key_head, first_row + r);
    const T* row =
        static_cast<const T*>(a.q) + a.q_strides.at(batch, at.head, at.is_there ? at.query : 0);
    load_eight(row, d, at.is_there ? a.width : 0, a.as_packs, q[r]);
    if (at.is_there) turn_eight<T>(a, at.query, d, q[r]);
#pragma unroll
    for (float& x : q[r]) x *= a.cap > 0.0f ? a.scale : a.scale * kLog2E;
  }
  const std::int64_t checked = checked_index(asked, a.keys - a.queries + 1, a.faults);
  if (checked == kNoIndex) return;
  const auto position = static_cast<int>(checked);
  const HeadOfKeys<T> head(a, batch, key_head, position);
  const int last_row = ::min(first_row + kRows, a.rows()) - 1;
  const KeyRange range(a, position, first_row / a.group, last_row / a.group);
  constexpr int kStep = kGroups * kAhead;
  for (int base = range.low + warp * kStep; base < range.high; base += kWarps * kStep) {
    float keys[kAhead][kEight], values[kAhead][kEight];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int j = base + u * kGroups + lane / kLanes;
      head.load(j, j < range.high, d, keys[u], values[u]);  // others are hidden below
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int newest = position + (first_row + r) / a.group;
      float scores[kAhead], top = -INFINITY;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int j = base + u * kGroups + lane / kLanes;
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < kEight; ++i) dot = fmaf(q[r][i], keys[u][i], dot);
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) {
          dot += __shfl_xor_sync(~0u, dot, offset);
        }
        if (a.cap > 0.0f) dot = a.cap * tanhf(dot / a.cap) * kLog2E;
        const bool is_seen =
            j < range.high && j <= newest && (a.window == 0 || j > newest - a.window);
        scores[u] = is_seen ? dot : -INFINITY;
        top = fmaxf(top, scores[u]);
      }
      running[r].scale(running[r].raise(top));
#pragma unroll
      for (int u = 0; u < kAhead; ++u) running[r].add(scores[u], values[u]);
    }
  }
  if (first_row == 0) {
    const int begin = static_cast<int>(blockIdx.x) * a.part_keys;
    head.keep(begin, begin + a.part_keys, warp * kGroups + lane / kLanes, kWarps * kGroups, d);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) running[r].join_lane(offset);
    if (lane >= kLanes) continue;
#pragma unroll
    for (int i = 0; i < kEight; ++i) joined.sum[warp][r][d + i] = running[r].sum[i];
    if (lane == 0) {
      joined.top[warp][r] = running[r].top;
      joined.total[warp][r] = running[r].total;
    }
  }
  __syncthreads();
  store_joined<T>(a, joined, batch, key_head, first_row);
}

// Joins what several blocks computed for a row, in the order of their keys; a block joins one row.
template <class T>
__global__ void join_parts_kernel(Predecessors before, CachedArgs a) {
  before.wait();
  const std::int64_t row = blockIdx.x, first = row * a.parts;
  float top = -INFINITY;
  for (int p = 0; p < a.parts; ++p) top = fmaxf(top, a.maxima[first + p].x);
  for (int d = static_cast<int>(threadIdx.x); d < a.width; d += static_cast<int>(blockDim.x)) {
    float sum = 0.0f, total = 0.0f;
    for (int p = 0; p < a.parts; ++p) {
      const float2 part = a.maxima[first + p];
      if (part.x == -INFINITY) continue;  // a part that nobody sees
      const float factor = fast_exp2(part.x - top);
      sum = fmaf(factor, a.sums[(first + p) * a.width + d], sum);
      total = fmaf(factor, part.y, total);
    }
    static_cast<T*>(a.y)[row * a.width + d] = from_float<T>(sum / total);
  }
}

template <class T, int kLanes>
void launch_parts(const KernelCall& call, const CachedArgs& a, std::int64_t rows,
                  const Grid& grid) {
  if (a.queries == 1 && a.as_packs) {
    if (rows == 1) return launch(call, grid, cached_token_kernel<T, kLanes, 1>, a);
    if (rows == 4) return launch(call, grid, cached_token_kernel<T, kLanes, 4>, a);
    if constexpr (kLanes < kWarp) launch(call, grid, cached_token_kernel<T, kLanes, 8>, a);
    return;
  }
  if (rows == 1) return launch(call, grid, cached_attention_kernel<T, kLanes, 1>, a);
  if (rows == 4) return launch(call, grid, cached_attention_kernel<T, kLanes, 4>, a);
  if constexpr (kLanes < kWarp) launch(call, grid, cached_attention_kernel<T, kLanes, 8>, a);
}

template <class T>
void run(const KernelCall& call, CachedArgs a, const AttentionSizes& sizes) {
  const CachedAttentionPlan plan = plan_cached_attention(sizes);
  const std::int64_t rows = sizes.heads * sizes.queries;
  a.row_blocks = static_cast<int>(plan.row_blocks);
  a.parts = static_cast<int>(plan.parts);
  a.part_keys = static_cast<int>(plan.part_keys);
  a.maxima = reinterpret_cast<float2*>(call.workspace.data());
  a.sums = reinterpret_cast<float*>(a.maxima + rows * plan.parts);
  const auto blocks_y = static_cast<unsigned>(a.key_heads * plan.row_blocks);
  a.is_cluster = a.queries == 1 && a.as_packs &&
                 plan.parts <= CachedAttentionPlan::kMostOfCluster &&
                 stream_of(call).compute_capability >= kHopper;
  const Grid grid{.blocks = static_cast<unsigned>(plan.parts),
                  .threads = kWarps * kWarp,
                  .blocks_y = blocks_y,
                  .blocks_z = static_cast<unsigned>(sizes.key_heads / a.key_heads),
                  .cluster = a.is_cluster ? static_cast<unsigned>(plan.parts) : 1};
  if (a.width <= 64) {
    launch_parts<T, 8>(call, a, plan.rows, grid);
  } else if (a.width <= 128) {
    launch_parts<T, 16>(call, a, plan.rows, grid);
  } else {
    launch_parts<T, 32>(call, a, plan.rows, grid);
  }
  if (plan.parts == 1 || a.is_cluster || a.y == nullptr) return;
  launch(call, {.blocks = static_cast<unsigned>(rows), .threads = 64}, join_parts_kernel<T>, a);
}

// True if every row begins at a multiple of 16 bytes and has a multiple of eight elements.
bool has_packs(const TensorRef& x) {
  const std::int64_t pack = 16 / static_cast<std::int64_t>(size_of(x.dtype));
  bool all = is_aligned(x.data, 16) && x.shape.back() % kEight == 0;
  for (int i = 0; i + 1 < x.shape.rank(); ++i) {
    all = all && (x.shape[i] == 1 || x.strides[i] % pack == 0);
  }
  return all;
}

bool has_packs_if_read(const TensorRef& x) {
  return x.data == nullptr || has_packs(x);
}

// Returns the cache to read: where somebody reads the updated cache `to`, that, after a copy of
// `from` to it if the two differ; else `from`.
const void* cache_to_read(const KernelCall& call, const TensorRef& from, const TensorRef& to) {
  if (to.data == nullptr || from.data == to.data) return from.data;
  const std::size_t bytes = static_cast<std::size_t>(to.count()) * size_of(to.dtype);
  const cudaError_t status =
      cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, stream_of(call).handle);
  if (status != cudaSuccess) fail_launch(call, status);
  return to.data;
}

void cached_attention(const KernelCall& call) {
  enum { kQ, kK, kV, kKCache, kVCache, kPosition, kCos, kSin };
  const auto& in = call.inputs;
  const TensorRef &q = in[kQ], &k = in[kK], &v = in[kV];
  const TensorRef &k_cache = in[kKCache], &v_cache = in[kVCache];
  const AttentionSizes sizes = attention_sizes({q.dtype, q.shape}, {k_cache.dtype, k_cache.shape});
  if (sizes.heads * sizes.queries == 0) return;
  const bool turns = in.size() > kSin;
  const std::int64_t window = call.attrs.integer("window");
  const CachedArgs a{.q = q.data,
                     .k = k.data,
                     .v = v.data,
                     .k_cache = cache_to_read(call, k_cache, call.outputs[1]),
                     .v_cache = cache_to_read(call, v_cache, call.outputs[2]),
                     .kept_k = call.outputs[1].data,
                     .kept_v = call.outputs[2].data,
                     .cos = turns ? in[kCos].data : nullptr,
                     .sin = turns ? in[kSin].data : nullptr,
                     .y = call.outputs[0].data,
                     .position = Indices(in[kPosition]),
                     .angle_dtype = turns ? in[kCos].dtype : DType::kF32,
                     .q_strides = CacheStrides(q),
                     .k_strides = CacheStrides(k),
                     .v_strides = CacheStrides(v),
                     .heads = static_cast<int>(q.shape[1]),
                     .key_heads = static_cast<int>(k.shape[1]),
                     .queries = static_cast<int>(sizes.queries),
                     .keys = static_cast<int>(sizes.keys),
                     .width = static_cast<int>(sizes.width),
                     .group = static_cast<int>(attention_group(q.shape, k.shape)),
                     .turned = turns ? 2 * static_cast<int>(in[kCos].shape[1]) : 0,
                     .row_blocks = 1,
                     .parts = 1,
                     .part_keys = 0,
                     .window = window < sizes.keys ? static_cast<int>(window) : 0,
                     .is_cluster = false,
                     .scale = static_cast<float>(call.attrs.real("scale")),
                     .cap = static_cast<float>(call.attrs.real("cap")),
                     .as_packs = has_packs(q) && has_packs(k) && has_packs(v) &&
                                 has_packs(k_cache) && has_packs(v_cache) &&
                                 has_packs_if_read(call.outputs[1]) &&
                                 has_packs_if_read(call.outputs[2]),
                     .faults = faults_of(call),
                     .sums = nullptr,
                     .maxima = nullptr};
  switch (q.dtype) {
    case DType::kBF16: return run<BF16>(call, a, sizes);
    case DType::kF16: return run<F16>(call, a, sizes);
    default: return run<float>(call, a, sizes);
  }
}

}  // namespace

void add_cached_attention_kernel(KernelTable& table) {
  table.add("cached_attention", cached_attention);
}

}  // namespace tracestep::cuda

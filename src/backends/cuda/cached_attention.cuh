// Work of one lane of cached_attention: it reads eight elements of a head, rotates new ones, keeps
// them, and sums values by their weights.
#pragma once

#include <limits>

#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/rows/row_packs.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda::cached {

inline constexpr int kWarps = static_cast<int>(CachedAttentionPlan::kWarps);
inline constexpr int kEight = 8;  // elements of a head that a lane holds
inline constexpr float kLog2E = 1.44269504f;

struct CacheStrides {
  std::int64_t batch, head, row;

  explicit CacheStrides(const TensorRef& x)
      : batch(x.shape.rank() > 3 ? x.strides[0] : 0),
        head(x.strides.back(2)),
        row(x.strides.back(1)) {}
  __device__ std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return b * batch + h * head + i * row;
  }
};

struct CachedArgs {
  const void *q, *k, *v;          // new
  const void *k_cache, *v_cache;  // [batch, key head, key, width]
  void *kept_k, *kept_v;          // where new ones are kept, the same; nullptr: nobody reads them
  const void *cos, *sin;          // [query, turned / 2]
  void* y;
  Indices position;  // the place of the first query
  DType angle_dtype;
  CacheStrides q_strides, k_strides, v_strides;
  int heads, key_heads, queries, keys, width, group;
  int turned;  // elements of a head that are turned
  int row_blocks, parts, part_keys, window;
  bool is_cluster;  // the parts of a head are one cluster of blocks, which joins them
  float scale, cap;
  bool as_packs;  // all rows are whole packs
  FaultPlace faults;
  float* sums;     // [row][part][width], of several parts
  float2* maxima;  // [row][part]: largest score, sum of weights

  __device__ int rows() const { return group * queries; }  // rows that share a head of keys
};

// The head of q and the query of a row, of those that share a head of keys; heads alternate by row.
struct RowAt {
  int head, query;
  bool is_there;

  __device__ RowAt(const CachedArgs& a, int key_head, int row)
      : head(key_head * a.group + row % a.group), query(row / a.group), is_there(row < a.rows()) {}
};

// Loads elements [first, first + 8) of a row of `width` elements; those after its end become 0.
template <class T>
__device__ void load_eight(const T* row, int first, int width, bool as_packs,
                           float (&out)[kEight]) {
  if (as_packs && first < width) {
#pragma unroll
    for (int i = 0; i < kEight; i += kPack<T>) {
      float part[kPack<T>];
      RowPack<T>::load(row + first + i).floats(part);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) out[i + j] = part[j];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) out[i] = first + i < width ? to_float(row[first + i]) : 0.0f;
}

// Reads the first four of `count` cosines or sines from `first` on; zeros where there are fewer.
__device__ inline float4 four_angles(const void* angles, DType dtype, int first, int count) {
  const auto read = [&](const auto* from) {
    float4 out{0.0f, 0.0f, 0.0f, 0.0f};
    if (count > 0) out.x = to_float(from[first]);
    if (count > 1) out.y = to_float(from[first + 1]);
    if (count > 2) out.z = to_float(from[first + 2]);
    if (count > 3) out.w = to_float(from[first + 3]);
    return out;
  };
  switch (dtype) {
    case DType::kBF16: return read(static_cast<const BF16*>(angles));
    case DType::kF16: return read(static_cast<const F16*>(angles));
    default: break;
  }
  const auto* from = static_cast<const float*>(angles);
  if (count < 4 || first % 4 != 0) return read(from);
  return *reinterpret_cast<const float4*>(from + first);  // in one load: latency is what counts
}

template <class T>
__device__ void turn_pair(float& low, float& high, float cos, float sin) {
  const float a = low, b = high;
  low = to_float(from_float<T>(a * cos - b * sin));
  high = to_float(from_float<T>(a * sin + b * cos));
}

// Rotates elements [first, first + 8) of a head of new token `i`, rounded to the keys' dtype.
template <class T>
__device__ void turn_eight(const CachedArgs& a, int i, int first, float (&x)[kEight]) {
  const int pairs = (a.turned - first) / 2;  // pairs from `first` on
  if (pairs <= 0) return;
  const int at = (i * a.turned + first) / 2;
  const float4 cos = four_angles(a.cos, a.angle_dtype, at, pairs);
  const float4 sin = four_angles(a.sin, a.angle_dtype, at, pairs);
  turn_pair<T>(x[0], x[1], cos.x, sin.x);
  if (pairs > 1) turn_pair<T>(x[2], x[3], cos.y, sin.y);
  if (pairs > 2) turn_pair<T>(x[4], x[5], cos.z, sin.z);
  if (pairs > 3) turn_pair<T>(x[6], x[7], cos.w, sin.w);
}

template <class T>
__device__ void store_eight(T* row, int first, int width, bool as_packs, const float (&x)[kEight]) {
  if (as_packs && first < width) {
#pragma unroll
    for (int i = 0; i < kEight; i += kPack<T>) {
      float part[kPack<T>];
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) part[j] = x[i + j];
      RowPack<T>::rounded(part).store(row + first + i);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (first + i < width) row[first + i] = from_float<T>(x[i]);
  }
}

// The keys and values of one head: the cached ones, and the new ones of the call.
template <class T>
struct HeadOfKeys {
  const CachedArgs& a;
  const T *k, *v, *k_cache, *v_cache;
  T *kept_k, *kept_v;
  int position;

  __device__ HeadOfKeys(const CachedArgs& args, int batch, int key_head, int first_new)
      : a(args),
        k(static_cast<const T*>(args.k) + args.k_strides.at(batch, key_head, 0)),
        v(static_cast<const T*>(args.v) + args.v_strides.at(batch, key_head, 0)),
        position(first_new) {
    const std::int64_t head = std::int64_t{batch} * args.key_heads + key_head;
    const std::int64_t begin = head * args.keys * args.width;
    k_cache = static_cast<const T*>(args.k_cache) + begin;
    v_cache = static_cast<const T*>(args.v_cache) + begin;
    kept_k = args.kept_k == nullptr ? nullptr : static_cast<T*>(args.kept_k) + begin;
    kept_v = args.kept_v == nullptr ? nullptr : static_cast<T*>(args.kept_v) + begin;
  }

  // Loads eight elements from `first` on of key and value `j`: from the cache or, after its end,
  // from the new rows, whose keys it rotates. Zeros unless `is_there`.
  __device__ void load(int j, bool is_there, int first, float (&key)[kEight],
                       float (&value)[kEight]) const {
    const int width = is_there ? a.width : 0, fresh = j - position;
    if (fresh < 0 || !is_there) {
      const std::int64_t row = std::int64_t{j} * a.width;
      load_eight(k_cache + row, first, width, a.as_packs, key);
      load_eight(v_cache + row, first, width, a.as_packs, value);
      return;
    }
    load_eight(k + fresh * a.k_strides.row, first, width, a.as_packs, key);
    load_eight(v + fresh * a.v_strides.row, first, width, a.as_packs, value);
    turn_eight<T>(a, fresh, first, key);
  }

  // Writes the new keys and values with numbers in [begin, end) to the cache: every `step`-th.
  __device__ void keep(int begin, int end, int slot, int step, int first) const {
    for (int j = ::max(begin, position) + slot; j < ::min(end, position + a.queries); j += step) {
      float key[kEight], value[kEight];
      load(j, true, first, key, value);
      const std::int64_t row = std::int64_t{j} * a.width;
      if (kept_k != nullptr) store_eight(kept_k + row, first, a.width, a.as_packs, key);
      if (kept_v != nullptr) store_eight(kept_v + row, first, a.width, a.as_packs, value);
    }
  }
};

// The running softmax and weighted sum over the keys seen so far; scores are exponents of two.
struct Running {
  float top = -INFINITY, total = 0.0f, sum[kEight] = {};

  // Raises the maximum to `next`; returns the factor by which the sums so far are to be multiplied.
  __device__ float raise(float next) {
    const float higher = fmaxf(top, next);
    const float factor = higher == -INFINITY ? 1.0f : fast_exp2(top - higher);
    top = higher;
    return factor;
  }
  __device__ void scale(float factor) {
    total *= factor;
#pragma unroll
    for (float& x : sum) x *= factor;
  }
  __device__ void add(float score, const float (&value)[kEight]) {
    if (score == -INFINITY) return;
    const float weight = fast_exp2(score - top);
    total += weight;
#pragma unroll
    for (int i = 0; i < kEight; ++i) sum[i] = fmaf(weight, value[i], sum[i]);
  }
  // Joins the maximum and sums of the lane whose number differs by the bit `offset` to this lane's.
  __device__ void join_lane(int offset) {
    const float other = __shfl_xor_sync(~0u, top, offset);
    const float higher = fmaxf(top, other);
    const float mine = top == -INFINITY ? 0.0f : fast_exp2(top - higher);
    const float its = other == -INFINITY ? 0.0f : fast_exp2(other - higher);
    total = total * mine + __shfl_xor_sync(~0u, total, offset) * its;
#pragma unroll
    for (float& x : sum) x = x * mine + __shfl_xor_sync(~0u, x, offset) * its;
    top = higher;
  }
};

// The keys [low, high) that this block reads for rows whose queries are [first, last].
struct KeyRange {
  int low, high;

  __device__ KeyRange(const CachedArgs& a, int position, int first, int last) {
    const int begin = static_cast<int>(blockIdx.x) * a.part_keys;
    high = ::min(::min(begin + a.part_keys, a.keys), position + last + 1);
    low = a.window == 0 ? begin : ::max(begin, position + first + 1 - a.window);
  }
};

}  // namespace tracestep::cuda::cached

// The kernel of gemv: one row times a matrix of weights, with norm, bias, activation and addend.
//
// Nothing is read twice, so all that counts is that memory is never idle. A warp takes whole rows
// of weights, or equal shares of each. On compute capability 9.0 it asks for them through a ring of
// its own in shared memory, by bulk copies: one instruction asks for kilobytes, and what is asked
// for takes no registers. The ring is filled before earlier kernels have ended, when memory
// would be idle. Elsewhere rows are read directly.
#pragma once

#include "backends/cuda/mbarrier.cuh"
#include "backends/cuda/predecessors.cuh"
#include "backends/cuda/rows/row_packs.cuh"

namespace tracestep::cuda::gemv {

inline constexpr int kWarps = 8;  // warps of a block
inline constexpr int kThreads = kWarps * kWarp;

enum class Norm : std::int32_t { kNone, kRms, kLayer };
enum class Activation : std::int32_t { kNone, kSilu, kGelu, kGeluErf, kRelu };

struct GemvArgs {
  const void *x, *weights;     // [k], [rows, k]
  const void *scale, *shift;   // the norm's, [k]; nullptr: none, as for the next two
  const void *bias, *c;        // [rows], [units]
  void* y;                     // [units]
  std::int64_t units;          // elements of y
  std::int64_t gate_distance;  // rows from the gate of a unit to what it gates; 0: a unit is a row
  int k, share;                // elements of a row, and of a share of it
  int shares;                  // warps that share a row: 1, 2, 4 or 8
  int stages;                  // stages in each warp's ring; 0: rows are read directly
  int most_rows;               // the most rows that a block computes
  Norm norm;
  Activation activation;
  float eps, offset;  // the norm's: eps is added to the mean square, offset to `scale`
  bool early;         // nothing in front writes weights, scale, shift, bias
  bool as_packs;      // x, weights, scale and shift are aligned to 16 bytes

  __host__ __device__ int rows_of_unit() const { return gate_distance == 0 ? 1 : 2; }
};

// The offsets in bytes of what a block keeps in shared memory, and the bytes of all of it.
template <class T>
struct SharedPlan {
  int ring, x, scale, shift, sums, scratch, bytes;

  __host__ __device__ explicit SharedPlan(const GemvArgs& a) {
    const auto row = static_cast<int>(a.k * sizeof(T));
    ring = 128 * ((kWarps * a.stages * 8 + 127) / 128);  // behind the barriers
    x = ring + kWarps * a.stages * a.share * static_cast<int>(sizeof(T));
    scale = x + row;
    shift = scale + (a.scale == nullptr ? 0 : row);
    scratch = shift + (a.shift == nullptr ? 0 : row);
    sums = scratch + kWarp * 4;
    bytes = sums + a.most_rows * a.shares * 4;
  }
};

// The rows of weights that a block takes, of units [first, last): each unit's gate, then its up.
struct BlockRows {
  std::int64_t first, last;
  int count;

  __device__ explicit BlockRows(const GemvArgs& a)
      : first(a.units * blockIdx.x / gridDim.x),
        last(a.units * (blockIdx.x + 1) / gridDim.x),
        count(static_cast<int>(last - first) * a.rows_of_unit()) {}
  __device__ std::int64_t row(const GemvArgs& a, int i) const {
    return a.gate_distance == 0 ? first + i : first + i / 2 + i % 2 * a.gate_distance;
  }
};

// --- the ring of a warp -------------------------------------------------------------------------
// The weights that a warp reads: in round r, its share of the block's row r · groups + group.
template <class T>
class Ring {
 public:
  __device__ Ring(const GemvArgs& a, const BlockRows& rows, std::byte* shared)
      : a_(a), rows_(rows), lane_(static_cast<int>(threadIdx.x) % kWarp) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    part_ = warp % a.shares;
    group_ = warp / a.shares;
    begin_ = part_ * a.share;
    length_ = ::max(::min(a.share, a.k - begin_), 0);
    const auto bytes = static_cast<int>(a.share * sizeof(T));
    data_ = shared + SharedPlan<T>(a).ring + warp * a.stages * bytes;
    barriers_ = shared_address(shared) + warp * a.stages * 8;
  }
  __device__ int begin() const { return begin_; }  // where the share begins
  __device__ int length() const { return length_; }
  __device__ int row(int round) const { return round * (kWarps / a_.shares) + group_; }
  __device__ int sum_at(int round) const { return row(round) * a_.shares + part_; }
  __device__ int rounds() const {
    const int groups = kWarps / a_.shares;
    return (rows_.count - group_ + groups - 1) / groups;
  }

  __device__ void fill() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane_ != 0 || length_ == 0) return;
    for (int s = 0; s < a_.stages; ++s) barrier_init(barriers_ + s * 8, 1);
    barrier_init_fence();
    for (int s = 0; s < a_.stages && s < rounds(); ++s) ask(s, s);
#endif
  }
  // Waits for this warp's share of the round's row, and returns it; it may be used until done().
  __device__ const T* wait(int round, int stage, unsigned parity) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (a_.stages > 0) {
      barrier_wait(barriers_ + stage * 8, parity);
      return reinterpret_cast<const T*>(data_) + stage * a_.share;
    }
#endif
    return source(round);
  }
  __device__ void done(int round, int stage) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    if (lane_ == 0 && a_.stages > 0 && round + a_.stages < rounds()) ask(round + a_.stages, stage);
#endif
  }

 private:
  __device__ const T* source(int round) const {
    return static_cast<const T*>(a_.weights) + rows_.row(a_, row(round)) * a_.k + begin_;
  }
  __device__ void ask(int round, int stage) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const auto bytes = static_cast<int>(length_ * sizeof(T));
    const std::uint32_t barrier = barriers_ + stage * 8;
    barrier_arrive_expect(barrier, bytes);
    load_bytes(shared_address(data_ + stage * static_cast<int>(a_.share * sizeof(T))),
               source(round), bytes, barrier);
#endif
  }

  const GemvArgs& a_;
  const BlockRows& rows_;
  std::byte* data_;
  std::uint32_t barriers_;
  int lane_, part_, group_, begin_, length_;
};

// --- the row x ----------------------------------------------------------------------------------
// Loads a pack: at once if `as_packs` (`from` is aligned), else element by element.
template <class T>
__device__ RowPack<T> load_pack(const T* from, bool as_packs) {
  if (as_packs) return RowPack<T>::load(from);
  RowPack<T> out;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) out.set_element(i, from[i]);
  return out;
}
template <class T>
__device__ void store_shared(T* to, const RowPack<T>& pack) {
  uint4 whole;
  memcpy(&whole, pack.words, sizeof whole);
  *reinterpret_cast<uint4*>(to) = whole;
}

// Calls f(k) for each of this thread's packs of a row, which begins at element k.
template <class T, class F>
__device__ void for_packs(const GemvArgs& a, F f) {
  for (int k = static_cast<int>(threadIdx.x) * kPack<T>; k < a.k; k += kThreads * kPack<T>) f(k);
}
// Copies this thread's packs of a row to shared memory, where only this thread reads them at first.
template <class T>
__device__ void copy_row(const GemvArgs& a, const void* from, std::byte* to) {
  for_packs<T>(a, [&](int k) {
    store_shared(reinterpret_cast<T*>(to) + k,
                 load_pack(static_cast<const T*>(from) + k, a.as_packs));
  });
}

// Normalises x in shared memory and rounds it to T, as the op of the norm would have done.
template <class T>
__device__ void normalise(const GemvArgs& a, std::byte* shared) {
  const SharedPlan<T> plan(a);
  T* const x = reinterpret_cast<T*>(shared + plan.x);
  auto* const scratch = reinterpret_cast<float*>(shared + plan.scratch);
  const auto sum_of = [&](auto term) {
    float sum = 0.0f;
    for_packs<T>(a, [&](int k) {
      float values[kPack<T>];
      RowPack<T>::load(x + k).floats(values);
#pragma unroll
      for (const float value : values) sum += term(value);
    });
    return block_reduce<Plus>(sum, scratch);
  };
  const auto width = static_cast<float>(a.k);
  const bool is_layer = a.norm == Norm::kLayer;
  const float mean = is_layer ? sum_of([](float value) { return value; }) / width : 0.0f;
  const float squares = sum_of([&](float value) { return (value - mean) * (value - mean); });
  const float rstd = 1.0f / sqrtf(squares / width + a.eps);
  for_packs<T>(a, [&](int k) {
    float values[kPack<T>], scale[kPack<T>], shift[kPack<T>] = {};
    RowPack<T>::load(x + k).floats(values);
    RowPack<T>::load(reinterpret_cast<const T*>(shared + plan.scale) + k).floats(scale);
    if (a.shift != nullptr) {
      RowPack<T>::load(reinterpret_cast<const T*>(shared + plan.shift) + k).floats(shift);
    }
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = (scale[i] + a.offset) * ((values[i] - mean) * rstd) + shift[i];
    }
    store_shared(x + k, RowPack<T>::rounded(values));
  });
}

// --- products -----------------------------------------------------------------------------------
// Returns a lane's part of the inner product of one share of a row of weights and of x.
template <bool kAsPacks, class T>
__device__ float multiply(const T* weights, const T* x, int length, int lane) {
  constexpr int kSums = 4;
  float sums[kSums] = {};
#pragma unroll 4
  for (int k = lane * kPack<T>; k < length; k += kWarp * kPack<T>) {
    float a[kPack<T>], b[kPack<T>];
    load_pack(weights + k, kAsPacks).floats(a);
    RowPack<T>::load(x + k).floats(b);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) sums[i % kSums] = fmaf(a[i], b[i], sums[i % kSums]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ inline float activated(Activation kind, float x) {
  switch (kind) {
    case Activation::kSilu: return scalar::Silu()(Real{x}).v;
    case Activation::kGelu: return scalar::Gelu()(Real{x}).v;
    case Activation::kGeluErf: return scalar::GeluErf()(Real{x}).v;
    case Activation::kRelu: return scalar::Relu()(Real{x}).v;
    default: return x;
  }
}

// The terms added to the sums of a unit; they are loaded while the weights are on their way.
struct Addends {
  float bias = 0.0f, bias_of_gated = 0.0f, c = 0.0f;

  template <class T>
  __device__ static Addends load(const GemvArgs& a, std::int64_t unit) {
    Addends out;
    const auto* const bias = static_cast<const T*>(a.bias);
    if (bias != nullptr) out.bias = to_float(bias[unit]);
    if (bias != nullptr && a.gate_distance != 0) {
      out.bias_of_gated = to_float(bias[unit + a.gate_distance]);
    }
    if (a.c != nullptr) out.c = to_float(static_cast<const T*>(a.c)[unit]);
    return out;
  }
};

// Writes element `unit` of y, from the sums of its rows: adds up their shares in order.
template <class T>
__device__ void finish_unit(const GemvArgs& a, const float* sums, std::int64_t unit,
                            const Addends& added) {
  const auto row = [&](int j) {
    float sum = 0.0f;
    for (int s = 0; s < a.shares; ++s) sum += sums[j * a.shares + s];
    return sum;
  };
  float y = activated(a.activation, row(0) + added.bias);
  if (a.gate_distance != 0) y *= row(1) + added.bias_of_gated;
  static_cast<T*>(a.y)[unit] = from_float<T>(y + added.c);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gemv_kernel(Predecessors before, GemvArgs a) {
  before.let_next_begin();
  extern __shared__ __align__(128) std::byte shared[];
  const SharedPlan<T> plan(a);
  const BlockRows rows(a);
  const Ring<T> ring(a, rows, shared);
  if (!a.early) before.wait();
  ring.fill();
  if (a.scale != nullptr) copy_row<T>(a, a.scale, shared + plan.scale);
  if (a.shift != nullptr) copy_row<T>(a, a.shift, shared + plan.shift);
  before.wait();
  const std::int64_t own = rows.first + threadIdx.x;
  const Addends own_added = own < rows.last ? Addends::load<T>(a, own) : Addends();
  copy_row<T>(a, a.x, shared + plan.x);
  if (a.norm != Norm::kNone) normalise<T>(a, shared);
  __syncthreads();
  const T* const x = reinterpret_cast<const T*>(shared + plan.x) + ring.begin();
  auto* const sums = reinterpret_cast<float*>(shared + plan.sums);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, rounds = ring.rounds();
  unsigned parity = 0;
  for (int round = 0, stage = 0; round < rounds; ++round) {
    float sum = 0.0f;
    if (ring.length() > 0) {
      const T* const weights = ring.wait(round, stage, parity);
      sum = a.as_packs ? multiply<true>(weights, x, ring.length(), lane)
                       : multiply<false>(weights, x, ring.length(), lane);
      ring.done(round, stage);
    }
    sum = warp_reduce<Plus>(sum);
    if (lane == 0) sums[ring.sum_at(round)] = sum;
    if (++stage >= a.stages) {
      stage = 0;
      parity ^= 1u;
    }
  }
  __syncthreads();
  for (std::int64_t unit = own; unit < rows.last; unit += kThreads) {
    const auto at = static_cast<int>(unit - rows.first) * a.rows_of_unit() * a.shares;
    finish_unit<T>(a, sums + at, unit, unit == own ? own_added : Addends::load<T>(a, unit));
  }
}

}  // namespace tracestep::cuda::gemv

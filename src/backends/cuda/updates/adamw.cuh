// Helpers of AdamW's kernels: streams of elements that differ in dtype, on which each load
// branches, and the update of a few elements. The kernels are limited by memory, so this costs
// nothing.
#pragma once

#include <cstring>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "ops/scalar/stochastic_rounding.h"

namespace tracestep::cuda {

// --- Bits: the bits of a Real, for the functors of stochastic rounding ------------------------
struct Bits {
  std::uint32_t v;
};
__device__ inline Bits constant(Bits, std::uint32_t x) {
  return {x};
}
__device__ inline Bits bits(Real x) {
  return {__float_as_uint(x.v)};
}
__device__ inline Real from_bits(Bits x) {
  return {__uint_as_float(x.v)};
}
__device__ inline Bits operator+(Bits a, Bits b) {
  return {a.v + b.v};
}
__device__ inline Bits operator*(Bits a, Bits b) {
  return {a.v * b.v};
}
__device__ inline Bits operator^(Bits a, Bits b) {
  return {a.v ^ b.v};
}
__device__ inline Bits operator&(Bits a, Bits b) {
  return {a.v & b.v};
}
__device__ inline Bits operator>>(Bits a, int count) {
  return {a.v >> count};
}
__device__ inline Bits operator<<(Bits a, int count) {
  return {a.v << count};
}

namespace updates {

struct Stream {
  void* data = nullptr;  // nullptr: an unread result
  DType dtype = DType::kF32;

  Stream() = default;
  explicit Stream(const TensorRef& tensor) : data(tensor.data), dtype(tensor.dtype) {}

  // True if `elements` neighbouring elements can be moved at once.
  bool is_aligned_to(std::size_t elements) const {
    return is_aligned(data, elements * size_of(dtype));
  }
};

// N elements as they are stored: a thread can load from all streams before it uses the first.
template <int N>
struct Raw {
  Pack<float, N> bits;  // elements of 16 bits fill the first half
};

template <int N>
__device__ Raw<N> load(const Stream& stream, std::int64_t i) {
  Raw<N> raw;
  if (stream.dtype == DType::kF32) {
    raw.bits = load_pack<N>(static_cast<const float*>(stream.data) + i);
  } else {
    const auto half = load_pack<N>(static_cast<const std::uint16_t*>(stream.data) + i);
    memcpy(&raw.bits, &half, sizeof half);
  }
  return raw;
}

template <int N>
__device__ Pack<float, N> widened(const Raw<N>& raw, DType dtype) {
  if (dtype == DType::kF32) return raw.bits;
  Pack<std::uint16_t, N> half;
  memcpy(&half, &raw.bits, sizeof half);
  Pack<float, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    out.at[j] = dtype == DType::kBF16 ? __uint_as_float(std::uint32_t{half.at[j]} << 16)
                                      : __half2float(__ushort_as_half(half.at[j]));
  }
  return out;
}

template <int N>
__device__ void store(const Stream& stream, std::int64_t i, const Pack<float, N>& x) {
  if (stream.data == nullptr) return;
  const auto narrowed = [&]<class T>(T) {
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(x.at[j]);
    store_pack(static_cast<T*>(stream.data) + i, out);
  };
  switch (stream.dtype) {
    case DType::kBF16: narrowed(BF16{}); break;
    case DType::kF16: narrowed(F16{}); break;
    default: narrowed(float{}); break;
  }
}

// Returns the value of a rank-0 operand, or element i of a vector; `fallback` without an operand.
__device__ inline float scalar_of(const Stream& scalar, float fallback, std::int64_t i = 0) {
  if (scalar.data == nullptr) return fallback;
  return widened<1>(load<1>(scalar, i), scalar.dtype).at[0];
}

// Operands and results of the update of one tensor.
struct Tensor {
  Stream p, g, m, v;
  Stream p_new, m_new, v_new;  // each may share the old one's memory
  Stream shadow;               // what p becomes, in a narrower dtype

  // True if `elements` neighbouring elements of every stream can be moved at once.
  bool is_aligned_to(std::size_t elements) const {
    bool aligned = true;
    for (const Stream& s : {p, g, m, v, p_new, m_new, v_new, shadow}) {
      aligned = aligned && s.is_aligned_to(elements);
    }
    return aligned;
  }
};

// Operands and attributes that all tensors of a call share.
struct Rates {
  Stream lr, step_size, grad_scale;
  Stream count;                 // the number of the step; without data nothing is rounded at random
  const bool* apply = nullptr;  // nullptr: always
  float weight_decay, beta1, beta2, eps;
  bool rounds_weight;   // a weight in bfloat16 is rounded at random
  bool has_eps_factor;  // it is the second element of step_size
};

struct Factors {
  Real decay, step_size, grad_scale, beta1, beta2, eps;
  Real count;
  bool apply, rounds, rounds_weight;
};

__device__ inline Factors factors_of(const Rates& r) {
  return {.decay = {scalar_of(r.lr, 0.0f) * -r.weight_decay + 1.0f},
          .step_size = {scalar_of(r.step_size, 0.0f)},
          .grad_scale = {scalar_of(r.grad_scale, 1.0f)},
          .beta1 = {r.beta1},
          .beta2 = {r.beta2},
          .eps = {r.eps * (r.has_eps_factor ? scalar_of(r.step_size, 1.0f, 1) : 1.0f)},
          .count = {scalar_of(r.count, 0.0f)},
          .apply = r.apply == nullptr || *r.apply,
          .rounds = r.count.data != nullptr,
          .rounds_weight = r.rounds_weight};
}

// Rounds the weight at random, by `noise`, the random bits of its element.
__device__ inline Real rounded_weight(Real p, Bits noise) {
  return scalar::StochasticRound()(p, scalar::WeightNoise()(noise));
}

template <int N>
struct Group {
  Raw<N> p, g, m, v;
};

template <int N>
__device__ Group<N> load_group(const Tensor& t, std::int64_t i) {
  return {load<N>(t.p, i), load<N>(t.g, i), load<N>(t.m, i), load<N>(t.v, i)};
}

// Updates N elements from `i` on, stores the results, and returns the new p.
template <int N>
__device__ Pack<float, N> update_group(const Tensor& t, const Factors& f, std::int64_t i,
                                       const Group<N>& group) {
  Pack<float, N> p = widened<N>(group.p, t.p.dtype), m = widened<N>(group.m, t.m.dtype);
  Pack<float, N> v = widened<N>(group.v, t.v.dtype);
  const Pack<float, N> g = widened<N>(group.g, t.g.dtype);
  const bool rounds = f.rounds && t.m.dtype == DType::kBF16;
  const bool rounds_weight = f.rounds_weight && t.p.dtype == DType::kBF16;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    auto r = scalar::Adamw()(Real{p.at[j]}, Real{g.at[j]} * f.grad_scale, Real{m.at[j]},
                             Real{v.at[j]}, f.decay, f.step_size, f.beta1, f.beta2, f.eps);
    if (rounds || rounds_weight) {
      const Bits noise =
          scalar::RoundingNoise()(bits(f.count), bits(Real{p.at[j]}), bits(Real{g.at[j]}));
      if (rounds) {
        r.m = scalar::StochasticRound()(r.m, noise);
        r.v = scalar::StochasticRound()(r.v, noise >> 16);
      }
      if (rounds_weight) r.parameter = rounded_weight(r.parameter, noise);
    }
    p.at[j] = f.apply ? r.parameter.v : p.at[j];
    m.at[j] = f.apply ? r.m.v : m.at[j];
    v.at[j] = f.apply ? r.v.v : v.at[j];
  }
  store<N>(t.p_new, i, p);
  store<N>(t.m_new, i, m);
  store<N>(t.v_new, i, v);
  store<N>(t.shadow, i, p);
  return p;
}

// Returns the rates of a call. `scale`, `apply` and `count` are nullptr if the call has none.
inline Rates rates_of(const KernelCall& call, const TensorRef& lr, const TensorRef& step_size,
                      const TensorRef* scale, const TensorRef* apply, const TensorRef* count) {
  const Attrs& attrs = call.attrs;
  return {.lr = Stream(lr),
          .step_size = Stream(step_size),
          .grad_scale = scale != nullptr ? Stream(*scale) : Stream(),
          .count = count != nullptr ? Stream(*count) : Stream(),
          .apply = apply != nullptr ? apply->as<const bool>() : nullptr,
          .weight_decay = static_cast<float>(attrs.real("weight_decay")),
          .beta1 = static_cast<float>(attrs.real("beta1")),
          .beta2 = static_cast<float>(attrs.real("beta2")),
          .eps = static_cast<float>(attrs.real("eps")),
          .rounds_weight = attrs.flag("rounds_weight"),
          .has_eps_factor = step_size.shape.rank() > 0};
}

// Returns the index of the table's row that has this chunk; chunks are numbered over all rows.
template <class Table>
__device__ int row_of(const Table& table, std::int32_t chunk) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.rows[middle].first_chunk <= chunk ? low : high) = middle;
  }
  return low;
}

// The most blocks of an update on another lane whose moments are in the host's memory. Each block
// has 24 KiB of reads in flight; PCIe 5.0 takes some 110 KiB, and other multiprocessors stay free.
constexpr unsigned kBlocksOnLink = 16;

inline bool lies_on_host(const void* data) {
  cudaPointerAttributes found{};
  return cudaPointerGetAttributes(&found, data) == cudaSuccess && found.type == cudaMemoryTypeHost;
}

// Returns the number of blocks for `work` items, of which a block does `per_block` at a time and a
// multiprocessor holds `resident` blocks. `m`: the address of the first moment.
inline unsigned update_blocks(const KernelCall& call, const void* m, std::int64_t work,
                              std::int64_t per_block, int resident) {
  const unsigned blocks = blocks_for(call, work, per_block, resident, 8);
  const bool is_beside = call.attrs.integer("lane") != 0;
  return is_beside && lies_on_host(m) ? std::min(blocks, kBlocksOnLink) : blocks;
}

}  // namespace updates

}  // namespace tracestep::cuda

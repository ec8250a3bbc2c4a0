// Elementwise kernels: y[i] = f(x0[i], x1[i], …) at memory speed, for operands of any strides and a
// dense result. Three ways, the fastest that fits: packs of dense operands; packs along an
// innermost dimension that is dense or broadcast in every operand; single elements.
//
// Each element is read and then written by one thread, so the result may use the storage of a dense
// operand.
#pragma once

#include <cstring>
#include <span>
#include <utility>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/maps/strided.cuh"
#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda {

inline constexpr int kMapThreads = 256;

// map() stores to a sink, whose put() takes N neighbouring values of f; this one stores them as is.
template <class Y>
struct Result {
  using Value = Y;
  static constexpr int kWidth = sizeof(Y);
  Y* data;

  explicit Result(const TensorRef& y) : data(y.as<Y>()) {}
  bool takes_packs(std::size_t n) const { return is_aligned(data, n * sizeof(Y)); }
  template <int N>
  __device__ void put(std::int64_t i, const Pack<Y, N>& values) const {
    store_pack(data + i, values);
  }
};

// --- device -----------------------------------------------------------------------------------
// N elements in whole registers, so that a thread unpacks none before it has started all its loads.
template <class X, int N>
struct Raw {
  static constexpr int kBytes = N * static_cast<int>(sizeof(X));
  Pack<std::uint32_t, (kBytes + 3) / 4> words;
  bool repeats = false;  // the first element stands for all

  __device__ void load(const X* x) {
    if constexpr (kBytes >= 4) {
      words = load_pack<kBytes / 4>(reinterpret_cast<const std::uint32_t*>(x));
    } else if constexpr (kBytes == 2) {
      words.at[0] = *reinterpret_cast<const std::uint16_t*>(x);
    } else {
      words.at[0] = *reinterpret_cast<const std::uint8_t*>(x);
    }
  }
  __device__ void load_repeated(const X* x) {
    Raw<X, 1> one;
    one.load(x);
#pragma unroll
    for (int i = 0; i < (static_cast<int>(sizeof(X)) + 3) / 4; ++i) words.at[i] = one.words.at[i];
    repeats = true;
  }
  __device__ Pack<X, N> pack() const {
    Pack<X, N> out;
    memcpy(&out, &words, kBytes);
#pragma unroll
    for (int j = 1; j < N; ++j) {
      if (repeats) out.at[j] = out.at[0];
    }
    return out;
  }
};

template <class X, int N, int kAhead>
struct Loaded {
  Raw<X, N> at[kAhead];
};

// The elements of a pack: 16 bytes of the widest type, but 4 if all are single bytes.
template <class Sink, class... X>
inline constexpr int kElementsOfPack = [] {
  constexpr int kWidest = std::max({Sink::kWidth, static_cast<int>(sizeof(X))...});
  return kWidest == 1 ? 4 : 16 / kWidest;
}();

// Packs that a thread reads before it uses the first: about 64 bytes in flight.
template <int N, class... X>
inline constexpr int kPacksAhead =
    N == 1 ? 4 : std::clamp(64 / (N * static_cast<int>((sizeof(X) + ... + 0))), 2, 4);

// Loads a thread's packs of an operand: `first`, first + kMapThreads, …
template <int N, int kAhead, class X, class Index>
__device__ Loaded<X, N, kAhead> load_dense(const X* x, Index first, Index packs) {
  Loaded<X, N, kAhead> out;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index pack = first + k * kMapThreads;
    if (pack < packs) out.at[k].load(x + static_cast<std::int64_t>(pack) * N);
  }
  return out;
}

// Loads packs at `offsets`; of an operand that repeats, one element for each pack of the others.
template <int N, int kOperand, class X, int kAhead, int kOperands>
__device__ Loaded<X, N, kAhead> load_strided(const X* x, bool repeats,
                                             const std::int64_t (&offsets)[kAhead][kOperands]) {
  Loaded<X, N, kAhead> out;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if (N > 1 && repeats) {
      out.at[k].load_repeated(x + offsets[k][kOperand]);
    } else {
      out.at[k].load(x + offsets[k][kOperand]);
    }
  }
  return out;
}

template <int N, class F, class Sink, class... X>
__device__ void put_one(const F& f, const Sink& sink, std::int64_t i, const Pack<X, N>&... x) {
  Pack<typename Sink::Value, N> y;
#pragma unroll
  for (int j = 0; j < N; ++j) y.at[j] = f(x.at[j]...);
  sink.template put<N>(i, y);
}

// Stores f of loaded packs to the sink. Element `begin` of the result is the first of this part.
template <int N, int kAhead, class F, class Sink, class Index, class... X>
__device__ void put_all(const F& f, const Sink& sink, std::int64_t begin, Index first, Index packs,
                        const Loaded<X, N, kAhead>&... x) {
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index pack = first + k * kMapThreads;
    if (pack < packs) {
      put_one<N>(f, sink, begin + static_cast<std::int64_t>(pack) * N, x.at[k].pack()...);
    }
  }
}

template <int N, class F, class Sink, class... X>
__global__ void __launch_bounds__(kMapThreads, 4)
    map_dense_kernel(Predecessors before, F f, Sink sink, std::int64_t count, const X*... x) {
  before.wait();
  constexpr int kAhead = kPacksAhead<N, X...>;
  const std::int64_t packs = count / N;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kMapThreads * kAhead) + threadIdx.x;
  put_all(f, sink, 0, first, packs, load_dense<N, kAhead>(x, first, packs)...);
  if (blockIdx.x == 0 && threadIdx.x < count - packs * N) {  // what is left of a pack
    const std::int64_t i = packs * N + threadIdx.x;
    put_one(f, sink, i, load_pack<1>(x + i)...);
  }
}

template <int N, class F, class Sink, std::size_t... k, class... X>
__device__ void map_walk(const F& f, const Sink& sink, std::int64_t begin,
                         const Walk<sizeof...(X)>& walk, std::index_sequence<k...>, const X*... x) {
  constexpr int kAhead = kPacksAhead<N, X...>;
  const auto packs = static_cast<std::uint32_t>(walk.count);
  const std::uint32_t first = blockIdx.x * (kMapThreads * kAhead) + threadIdx.x;
  std::int64_t offsets[kAhead][sizeof...(X)];
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {  // past the end: read the last pack again
    walk.offsets(::min(first + a * kMapThreads, packs - 1), offsets[a]);
  }
  put_all(f, sink, begin, first, packs,
          load_strided<N, static_cast<int>(k)>(x, walk.strides[0][k] == 0, offsets)...);
}

// Maps by a walk over packs, which are N elements apart in the walk's innermost dimension.
template <int N, class F, class Sink, class... X>
__global__ void __launch_bounds__(kMapThreads, 4)
    map_strided_kernel(Predecessors before, F f, Sink sink, std::int64_t begin,
                       Walk<sizeof...(X)> walk, const X*... x) {
  before.wait();
  map_walk<N>(f, sink, begin, walk, std::index_sequence_for<X...>(), x...);
}

// --- host -------------------------------------------------------------------------------------
// Makes `walk` one over packs of n elements, or returns false if an operand is not made of such
// packs. `aligned`: the operands whose addresses allow packs.
template <int kOperands>
bool walk_in_packs(Walk<kOperands>& walk, int n, const std::array<bool, kOperands>& aligned) {
  if (walk.rank == 0 || walk.sizes[0] % n != 0) return false;
  for (int k = 0; k < kOperands; ++k) {
    if (walk.strides[0][k] == 0) continue;
    if (walk.strides[0][k] != 1 || !aligned[static_cast<std::size_t>(k)]) return false;
    for (int d = 1; d < walk.rank; ++d) {
      if (walk.strides[d][k] % n != 0) return false;
    }
  }
  for (int k = 0; k < kOperands; ++k) walk.strides[0][k] *= n;
  walk.sizes[0] /= n;
  walk.count /= n;
  if (walk.fits_32_bits()) walk.set_divisors();
  return true;
}

template <int N, class... X, class F, class Sink, std::size_t... k>
void launch_walk(const KernelCall& call, const F& f, const Sink& sink, std::span<const TensorRef> x,
                 const Walk<sizeof...(X)>& walk, std::index_sequence<k...>) {
  constexpr std::int64_t kBlock = kMapThreads * kPacksAhead<N, X...>;
  for_parts(walk, [&](const auto& part, std::int64_t first, const auto& offsets) {
    const Grid grid{.blocks = static_cast<unsigned>(ceil_div(part.count, kBlock)),
                    .threads = kMapThreads};
    launch(call, grid, map_strided_kernel<N, F, Sink, X...>, f, sink, first * N, part,
           x[k].template as<const X>() + offsets[k]...);
  });
}

template <class... X, class F, class Sink, std::size_t... k>
void map_operands(const KernelCall& call, const F& f, const Sink& sink,
                  std::span<const TensorRef> x, std::index_sequence<k...> operands) {
  constexpr int kOperands = sizeof...(X);
  constexpr int kN = kElementsOfPack<Sink, X...>;
  const std::int64_t count = x[0].count();
  if (count == 0) return;
  const std::array<bool, kOperands> aligned{is_aligned(x[k].data, kN * sizeof(X))...};
  const bool packs = sink.takes_packs(kN);
  if (packs && (aligned[k] && ...) && (x[k].contiguous() && ...)) {
    constexpr std::int64_t kBlock = kMapThreads * kPacksAhead<kN, X...>;
    const Grid grid{
        .blocks = static_cast<unsigned>(std::max<std::int64_t>(1, ceil_div(count / kN, kBlock))),
        .threads = kMapThreads};
    return launch(call, grid, map_dense_kernel<kN, F, Sink, X...>, f, sink, count,
                  x[k].template as<const X>()...);
  }
  auto walk = make_walk<kOperands>(x[0].shape, {x[k].strides...});
  if (packs && walk_in_packs<kOperands>(walk, kN, aligned)) {
    launch_walk<kN, X...>(call, f, sink, x, walk, operands);
  } else {
    launch_walk<1, X...>(call, f, sink, x, walk, operands);
  }
}

// Stores f(x[0][i], x[1][i], …) to `sink`; one type X per operand, all operands of one shape.
template <class... X, class F, class Sink>
void map(const KernelCall& call, const F& f, const Sink& sink, std::span<const TensorRef> x) {
  map_operands<X...>(call, f, sink, x, std::index_sequence_for<X...>());
}

}  // namespace tracestep::cuda

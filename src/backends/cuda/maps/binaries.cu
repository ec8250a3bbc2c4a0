// Elementwise arithmetic of two operands, and swiglu_grad with its three.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/functor_apply.cuh"
#include "backends/cuda/maps/map.cuh"

namespace tracestep::cuda {
namespace {

template <class F>
void binary(const KernelCall& call) {
  with_number(call.outputs[0].dtype, [&]<class T>(T) {
    map<T, T>(call, Applied<F, T>(), Result<T>(call.outputs[0]), call.inputs);
  });
}

// Runs an op of two floating operands by F, which is not defined for integers.
template <class F>
void floating_binary(const KernelCall& call) {
  with_floating(call.outputs[0].dtype, [&]<class T>(T) {
    map<T, T>(call, Applied<F, T>(), Result<T>(call.outputs[0]), call.inputs);
  });
}

// --- swiglu_grad: the kernel makes two gradients at once ----------------------------------------
template <class T>
struct TwoGradients {
  T gate, up;
};

// A sink that stores both gradients of SwiGLU to dense tensors; a null one is not stored.
template <class T>
struct TwoResults {
  using Value = TwoGradients<T>;
  static constexpr int kWidth = sizeof(T);
  T *gate, *up;

  bool takes_packs(std::size_t n) const {
    return is_aligned(gate, n * sizeof(T)) && is_aligned(up, n * sizeof(T));
  }
  template <int N>
  __device__ void put(std::int64_t i, const Pack<Value, N>& values) const {
    Pack<T, N> pack;
    if (gate != nullptr) {
#pragma unroll
      for (int j = 0; j < N; ++j) pack.at[j] = values.at[j].gate;
      store_pack(gate + i, pack);
    }
    if (up != nullptr) {
#pragma unroll
      for (int j = 0; j < N; ++j) pack.at[j] = values.at[j].up;
      store_pack(up + i, pack);
    }
  }
};

// A sink that stores both gradients to tensors that are not dense, at offsets found by a Walk.
template <class T>
struct TwoStridedResults {
  using Value = TwoGradients<T>;
  static constexpr int kWidth = sizeof(T);
  T *gate, *up;
  Walk<2> walk;
  bool fits_32_bits;

  bool takes_packs(std::size_t n) const {
    const auto pack = static_cast<std::int64_t>(n);
    bool fits = is_aligned(gate, n * sizeof(T)) && is_aligned(up, n * sizeof(T)) && walk.rank > 0 &&
                walk.sizes[0] % pack == 0;
    for (int k = 0; k < 2; ++k) {
      fits = fits && walk.strides[0][k] == 1;
      for (int d = 1; d < walk.rank; ++d) fits = fits && walk.strides[d][k] % pack == 0;
    }
    return fits;
  }
  template <int N>
  __device__ void put(std::int64_t i, const Pack<Value, N>& values) const {
    std::int64_t at[2];
    if (fits_32_bits) {
      walk.offsets(static_cast<std::uint32_t>(i), at);
    } else {
      walk.offsets(static_cast<std::uint64_t>(i), at);
    }
    const TwoResults<T> results{gate == nullptr ? nullptr : gate + at[0],
                                up == nullptr ? nullptr : up + at[1]};
    results.template put<N>(0, values);
  }
};

template <class T>
struct SwigluGrad {
  __device__ TwoGradients<T> operator()(T dy, T gate, T up) const {
    const auto y = scalar::SwigluGrad()(computed(dy), computed(gate), computed(up));
    return {stored<T>(y.gate), stored<T>(y.up)};
  }
};

void swiglu_grad(const KernelCall& call) {
  const TensorRef &dgate = call.outputs[0], &dup = call.outputs[1];
  if (dgate.count() == 0) return;  // make_walk needs at least one element
  const Walk<2> walk = make_walk<2>(dgate.shape, {dgate.strides, dup.strides});
  with_floating(call.inputs[0].dtype, [&]<class T>(T) {
    if (walk.is_dense()) {
      const TwoResults<T> results{dgate.as<T>(), dup.as<T>()};
      map<T, T, T>(call, SwigluGrad<T>(), results, call.inputs);
    } else {
      const TwoStridedResults<T> results{dgate.as<T>(), dup.as<T>(), walk, walk.fits_32_bits()};
      map<T, T, T>(call, SwigluGrad<T>(), results, call.inputs);
    }
  });
}

}  // namespace

void add_binary_kernels(KernelTable& table) {
#define TRACESTEP_ADD(name, functor) table.add(#name, binary<scalar::functor>);
  TRACESTEP_BINARY_OPS(TRACESTEP_ADD)
#undef TRACESTEP_ADD
#define TRACESTEP_ADD(name, functor) table.add(#name, floating_binary<scalar::functor>);
  TRACESTEP_FLOATING_BINARY_OPS(TRACESTEP_ADD)
#undef TRACESTEP_ADD
  table.add("swiglu_grad", swiglu_grad);
}

}  // namespace tracestep::cuda

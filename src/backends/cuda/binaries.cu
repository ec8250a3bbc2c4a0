// Elementwise arithmetic of two operands, and swiglu_grad with its three.
#include "backends/cuda/elementwise.h"
#include "backends/cuda/functor_apply.cuh"
#include "backends/cuda/map.cuh"

namespace tracestep::cuda {
namespace {

template <class F>
void binary(const KernelCall& call) {
  with_number(call.outputs[0].dtype, [&]<class T>(T) {
    map<T, T>(call, Applied<F, T>(), Result<T>(call.outputs[0]), call.inputs);
  });
}

// For functors that are not defined for integers.
template <class F>
void floating_binary(const KernelCall& call) {
  with_floating(call.outputs[0].dtype, [&]<class T>(T) {
    map<T, T>(call, Applied<F, T>(), Result<T>(call.outputs[0]), call.inputs);
  });
}

// --- swiglu_grad ------------------------------------------------------------------------------
template <class T>
struct TwoGradients {
  T gate, up;
};

// Both results; either may be unread.
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

template <class T>
struct SwigluGrad {
  __device__ TwoGradients<T> operator()(T dy, T gate, T up) const {
    const auto y = scalar::SwigluGrad()(computed(dy), computed(gate), computed(up));
    return {stored<T>(y.gate), stored<T>(y.up)};
  }
};

void swiglu_grad(const KernelCall& call) {
  with_floating(call.inputs[0].dtype, [&]<class T>(T) {
    const TwoResults<T> results{call.outputs[0].as<T>(), call.outputs[1].as<T>()};
    map<T, T, T>(call, SwigluGrad<T>(), results, call.inputs);
  });
}

}  // namespace

void add_binary_kernels(KernelTable& table) {
  table.add("add", binary<scalar::Add>);
  table.add("sub", binary<scalar::Sub>);
  table.add("mul", binary<scalar::Mul>);
  table.add("maximum", binary<scalar::Maximum>);
  table.add("minimum", binary<scalar::Minimum>);
  table.add("div", floating_binary<scalar::Div>);
  table.add("silu_grad", floating_binary<scalar::SiluGrad>);
  table.add("swiglu", floating_binary<scalar::Swiglu>);
  table.add("swiglu_grad", swiglu_grad);
}

}  // namespace tracestep::cuda

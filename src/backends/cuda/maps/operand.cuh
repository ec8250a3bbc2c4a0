// Floating operands whose dtype is known only at run time: scalars, statistics, weights. The branch
// on it is the same for all threads; large tensors are templates of their element type instead.
#pragma once

#include "backends/cuda/numbers.cuh"
#include "runtime/tensor_ref.h"

namespace tracestep::cuda {

// Reads elements of a floating dtype that is known at run time, by their offset from the first.
struct AnyFloat {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  AnyFloat() = default;
  explicit AnyFloat(const TensorRef& x) : data(x.data), dtype(x.dtype) {}
  __device__ float at(std::int64_t i) const {
    switch (dtype) {
      case DType::kBF16: return to_float(static_cast<const BF16*>(data)[i]);
      case DType::kF16: return to_float(static_cast<const F16*>(data)[i]);
      default: return static_cast<const float*>(data)[i];
    }
  }
  // Loads N neighbours from element i on; i is a multiple of N, and `data` aligned to N elements.
  template <int N>
  __device__ void load(std::int64_t i, float (&out)[N]) const {
    switch (dtype) {
      case DType::kBF16: return load_as<BF16, N>(i, out);
      case DType::kF16: return load_as<F16, N>(i, out);
      default: return load_as<float, N>(i, out);
    }
  }
  bool is_aligned_to(int elements) const {
    return is_aligned(data, static_cast<std::size_t>(elements) * size_of(dtype));
  }

 private:
  template <class T, int N>
  __device__ void load_as(std::int64_t i, float (&out)[N]) const {
    const Pack<T, N> pack = load_pack<N>(static_cast<const T*>(data) + i);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = to_float(pack.at[j]);
  }
};

struct AnyFloatResult {
  void* data = nullptr;
  DType dtype = DType::kF32;

  AnyFloatResult() = default;
  explicit AnyFloatResult(const TensorRef& y) : data(y.data), dtype(y.dtype) {}
  __device__ void put(std::int64_t i, float x) const {
    switch (dtype) {
      case DType::kBF16: static_cast<BF16*>(data)[i] = from_float<BF16>(x); break;
      case DType::kF16: static_cast<F16*>(data)[i] = from_float<F16>(x); break;
      default: static_cast<float*>(data)[i] = x;
    }
  }
};

}  // namespace tracestep::cuda

// Stores results in a dtype that is known only at run time. The branch on the dtype is the same for
// all threads and is taken once for several elements.
#pragma once

#include <limits>

#include "backends/cuda/maps/functor_apply.cuh"
#include "runtime/tensor_ref.h"

namespace tracestep::cuda {

// Returns x as an integer, rounded towards zero and clamped to the range of Int; NaN gives 0.
template <class Int>
__device__ inline Int to_whole(float x) {
  if (x != x) return 0;
  if constexpr (sizeof(Int) == 8) {
    return __float2ll_rz(x);  // saturates
  } else {
    const int y = __float2int_rz(x);  // saturates
    return static_cast<Int>(::min(::max(y, static_cast<int>(std::numeric_limits<Int>::min())),
                                  static_cast<int>(std::numeric_limits<Int>::max())));
  }
}

// Converts x: floats to floats round to nearest even; floats to integers as to_whole() does;
// integers wrap around; anything to bool is x != 0. Generators give doubles.
template <class To, class From>
__device__ inline To converted(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    if constexpr (kIsFloating<From>) {
      return to_float(x) != 0.0f;
    } else {
      return x != From(0);
    }
  } else if constexpr (kIsFloating<To>) {
    if constexpr (kIsFloating<From>) {
      return from_float<To>(to_float(x));
    } else {
      return from_float<To>(static_cast<float>(x));
    }
  } else if constexpr (kIsFloating<From>) {
    return to_whole<To>(to_float(x));
  } else {
    return static_cast<To>(x);
  }
}

// A sink (map.cuh) that takes values of type From and stores them as `dtype`.
template <class From>
struct AnyResult {
  using Value = From;
  static constexpr int kWidth = 4;  // bytes of the usual result; wider ones take several stores
  void* data;
  DType dtype;

  explicit AnyResult(const TensorRef& y) : data(y.data), dtype(y.dtype) {}
  bool takes_packs(std::size_t n) const { return is_aligned(data, n * size_of(dtype)); }

  template <int N>
  __device__ void put(std::int64_t i, const Pack<From, N>& values) const {
    switch (dtype) {
      case DType::kBF16: return put_as<BF16>(i, values);
      case DType::kF16: return put_as<F16>(i, values);
      case DType::kF8E4M3: return put_as<F8E4M3>(i, values);
      case DType::kF8E5M2: return put_as<F8E5M2>(i, values);
      case DType::kI64: return put_as<std::int64_t>(i, values);
      case DType::kI32: return put_as<std::int32_t>(i, values);
      case DType::kU8: return put_as<std::uint8_t>(i, values);
      case DType::kBool: return put_as<bool>(i, values);
      default: return put_as<float>(i, values);
    }
  }

 private:
  template <class To, int N>
  __device__ void put_as(std::int64_t i, const Pack<From, N>& values) const {
    Pack<To, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = converted<To>(values.at[j]);
    store_pack(static_cast<To*>(data) + i, out);
  }
};

}  // namespace tracestep::cuda

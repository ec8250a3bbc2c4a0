// Applies the scalar functors to stored elements: their computing types and the conversions.
#pragma once

#include <type_traits>

#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda {

// An integer or bool as a computing type. Sums and products wrap around; a bool is true if not 0.
template <class T>
struct Whole {
  T v;
};

// Returns x as an unsigned number, whose arithmetic wraps: signed overflow is undefined.
template <class T>
__device__ inline auto wide(Whole<T> x) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<std::uint64_t>(x.v);
  } else {
    return static_cast<std::uint32_t>(x.v);
  }
}
template <class T>
__device__ inline Whole<T> operator+(Whole<T> a, Whole<T> b) {
  return {static_cast<T>(wide(a) + wide(b))};
}
template <class T>
__device__ inline Whole<T> operator-(Whole<T> a, Whole<T> b) {
  return {static_cast<T>(wide(a) - wide(b))};
}
template <class T>
__device__ inline Whole<T> operator*(Whole<T> a, Whole<T> b) {
  return {static_cast<T>(wide(a) * wide(b))};
}
template <class T>
__device__ inline Whole<T> max(Whole<T> a, Whole<T> b) {
  return a.v < b.v ? b : a;
}
template <class T>
__device__ inline Whole<T> min(Whole<T> a, Whole<T> b) {
  return b.v < a.v ? b : a;
}
template <class T>
__device__ inline bool less(Whole<T> a, Whole<T> b) {
  return a.v < b.v;
}
template <class T>
__device__ inline bool less_equal(Whole<T> a, Whole<T> b) {
  return a.v <= b.v;
}
template <class T>
__device__ inline bool equal(Whole<T> a, Whole<T> b) {
  return a.v == b.v;
}

// --- stored elements T and the types they are computed in: Number for floats, Whole for others ---
template <class T>
inline constexpr bool kIsFloating =
    std::is_same_v<T, float> || std::is_same_v<T, BF16> || std::is_same_v<T, F16> ||
    std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>;

template <class T>
__device__ inline auto computed(T x) {
  if constexpr (kIsFloating<T>) {
    return Number<sizeof(T) == 2>{to_float(x)};
  } else {
    return Whole<T>{x};
  }
}
template <class T, bool r>
__device__ inline T stored(Number<r> x) {
  return from_float<T>(x.v);
}
template <class T>
__device__ inline T stored(Whole<T> x) {
  return x.v;
}
template <class T>
__device__ inline bool stored(bool x) {
  return x;
}

// Applies the functor F to elements and converts its result back to T; a bool stays bool.
template <class F, class T>
struct Applied {
  template <class... X>
  __device__ auto operator()(X... x) const {
    return stored<T>(F()(computed(x)...));
  }
};

// Calls f(T{}) with the element type T of a dtype; 8-bit floating dtypes are not allowed.
template <class F>
void with_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(BF16{});
    case DType::kF16: return f(F16{});
    case DType::kI64: return f(std::int64_t{});
    case DType::kI32: return f(std::int32_t{});
    case DType::kU8: return f(std::uint8_t{});
    case DType::kBool: return f(bool{});
    default: return f(float{});
  }
}

}  // namespace tracestep::cuda

// Reads and writes single elements of any dtype as numbers, for generators, casts and rank-0
// operands.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/float8.h"
#include "base/half.h"
#include "runtime/tensor_ref.h"

namespace tracestep::cpu {

// Returns x truncated towards zero; too large values saturate, and NaN becomes 0.
template <class Int, class Real>
Int to_integer(Real x) {
  if (std::isnan(x)) return 0;
  // 2^63 and 2^31 are exact in every floating type; the largest integers are not.
  constexpr double kEnd = -static_cast<double>(std::numeric_limits<Int>::min());
  if (std::numeric_limits<Int>::is_signed) {
    if (static_cast<double>(x) >= kEnd) return std::numeric_limits<Int>::max();
    if (static_cast<double>(x) < -kEnd) return std::numeric_limits<Int>::min();
  } else {
    if (static_cast<double>(x) >= static_cast<double>(std::numeric_limits<Int>::max())) {
      return std::numeric_limits<Int>::max();
    }
    if (x < Real{0}) return 0;
  }
  return static_cast<Int>(x);
}

// Stores x (double, float or std::int64_t) as element i of a dense tensor.
template <class Number>
void put_number(void* data, DType dtype, std::int64_t i, Number x) {
  constexpr bool kReal = std::is_floating_point_v<Number>;
  const auto as_integer = [&]<class Int>(Int) {
    if constexpr (kReal) {
      return to_integer<Int>(x);
    } else {
      return static_cast<Int>(x);
    }
  };
  switch (dtype) {
    case DType::kF64: static_cast<double*>(data)[i] = static_cast<double>(x); break;
    case DType::kF32: static_cast<float*>(data)[i] = static_cast<float>(x); break;
    case DType::kBF16: static_cast<BF16*>(data)[i] = to_bf16(static_cast<float>(x)); break;
    case DType::kF16: static_cast<F16*>(data)[i] = to_f16(static_cast<float>(x)); break;
    case DType::kF8E4M3:
      static_cast<F8E4M3*>(data)[i] = to_float8<F8E4M3>(static_cast<float>(x));
      break;
    case DType::kF8E5M2:
      static_cast<F8E5M2*>(data)[i] = to_float8<F8E5M2>(static_cast<float>(x));
      break;
    case DType::kI64: static_cast<std::int64_t*>(data)[i] = as_integer(std::int64_t{}); break;
    case DType::kI32: static_cast<std::int32_t*>(data)[i] = as_integer(std::int32_t{}); break;
    case DType::kU8: static_cast<std::uint8_t*>(data)[i] = as_integer(std::uint8_t{}); break;
    case DType::kBool: static_cast<std::uint8_t*>(data)[i] = x != Number{0}; break;
  }
}

// Returns the value of a rank-0 floating operand.
inline float scalar_of(const TensorRef& x) {
  switch (x.dtype) {
    case DType::kBF16: return to_float(*x.as<const BF16>());
    case DType::kF16: return to_float(*x.as<const F16>());
    default: return *x.as<const float>();
  }
}

}  // namespace tracestep::cpu

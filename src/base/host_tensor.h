// HostTensor: a dense row-major tensor that owns its bytes in host memory, and TensorView, which
// borrows them. Files, batches and tests exchange these; devices copy from and to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/half.h"

namespace tracestep {

// True when elements of `dtype` are held as T; booleans are bytes (std::uint8_t).
template <class T>
constexpr bool holds(DType dtype) {
  switch (dtype) {
    case DType::kF64: return std::is_same_v<T, double>;
    case DType::kF32: return std::is_same_v<T, float>;
    case DType::kBF16: return std::is_same_v<T, BF16>;
    case DType::kF16: return std::is_same_v<T, F16>;
    case DType::kI64: return std::is_same_v<T, std::int64_t>;
    case DType::kI32: return std::is_same_v<T, std::int32_t>;
    case DType::kU8:
    case DType::kBool: return std::is_same_v<T, std::uint8_t>;
  }
  return false;
}

struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  static HostTensor zeros(DType dtype, const Shape& shape) {
    const auto count = static_cast<std::size_t>(shape.product());
    return {dtype, shape, std::vector<std::byte>(count * size_of(dtype))};
  }
  // A copy of `values`; T must be the type that elements of `dtype` are held as.
  template <class T>
  static HostTensor of(DType dtype, const Shape& shape, std::span<const T> values) {
    HostTensor out = zeros(dtype, shape);
    TRACESTEP_CHECK(static_cast<std::int64_t>(values.size()) == out.count(),
                    "{} values for shape {}", values.size(), shape.str());
    TRACESTEP_CHECK(holds<T>(dtype), "values of another type for {}", name_of(dtype));
    if (!values.empty()) std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
    return out;
  }

  std::int64_t count() const { return shape.product(); }

  template <class T>
  std::span<T> as() {
    check<T>();
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    check<T>();
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  template <class T>
  void check() const {
    TRACESTEP_CHECK(holds<T>(dtype), "a tensor of {} read as another type", name_of(dtype));
    TRACESTEP_CHECK(bytes.size() == static_cast<std::size_t>(count()) * sizeof(T),
                    "{} bytes for {} of {}", bytes.size(), shape.str(), name_of(dtype));
  }
};

// Borrowed bytes, at any alignment: valid as long as their owner.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;

  TensorView() = default;
  TensorView(DType d, const Shape& s, std::span<const std::byte> b)
      : dtype(d), shape(s), bytes(b) {}
  TensorView(const HostTensor& tensor)
      : dtype(tensor.dtype), shape(tensor.shape), bytes(tensor.bytes) {}

  std::int64_t count() const { return shape.product(); }
  HostTensor copy() const { return {dtype, shape, {bytes.begin(), bytes.end()}}; }
};

// The same numbers in float64, exactly; integers and booleans stay as they are.
HostTensor widened(const TensorView& tensor);
// Float32 numbers in a 16-bit floating type, rounded to nearest even.
HostTensor narrowed(const TensorView& tensor, DType to);

}  // namespace tracestep

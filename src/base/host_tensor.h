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
#include "base/float8.h"
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
    case DType::kF8E4M3: return std::is_same_v<T, F8E4M3>;
    case DType::kF8E5M2: return std::is_same_v<T, F8E5M2>;
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
  // Returns a copy of `values`; T must be the type that elements of `dtype` are held as.
  template <class T>
  static HostTensor of(DType dtype, const Shape& shape, std::span<const T> values) {
    HostTensor out = zeros(dtype, shape);
    out.check_access(holds<T>(dtype), values.size_bytes());
    if (!values.empty()) std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
    return out;
  }

  std::int64_t count() const { return shape.product(); }

  template <class T>
  std::span<T> as() {
    check_access(holds<T>(dtype), static_cast<std::size_t>(count()) * sizeof(T));
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    check_access(holds<T>(dtype), static_cast<std::size_t>(count()) * sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  // CHECKs that the caller's element type is the tensor's (`same_type`), and the size in bytes.
  void check_access(bool same_type, std::size_t size) const;
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

// Converts to float64, exactly; integers and booleans stay as they are.
HostTensor widened(const TensorView& tensor);
// Converts floating numbers to another floating type, rounded to nearest even; in 8-bit types they
// saturate.
HostTensor as_dtype(const TensorView& tensor, DType to);

}  // namespace tracestep

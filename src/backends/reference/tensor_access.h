// Access to tensors by multi-index, for any strides, as the reference kernels need it. Slow and
// obvious.
#pragma once

#include <cstdint>

#include "runtime/tensor_ref.h"

namespace tracestep::reference {

// The elements of an operand or a result; T must be the type in which its dtype is stored.
template <class T>
class View {
 public:
  explicit View(const TensorRef& tensor) : data_(tensor.as<T>()), strides_(tensor.strides) {}

  T& operator[](const Dims& index) const {
    std::int64_t at = 0;
    for (int i = 0; i < index.rank(); ++i) at += index[i] * strides_[i];
    return data_[at];
  }
  // False if this stands for a result that nobody reads.
  explicit operator bool() const { return data_ != nullptr; }

 private:
  T* data_;
  Strides strides_;
};

// Calls f(index) for every index of `shape`, the last dimension fastest.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  if (shape.product() == 0) return;
  Dims index = Dims::filled(shape.rank(), 0);
  while (true) {
    f(static_cast<const Dims&>(index));
    int i = shape.rank() - 1;
    while (i >= 0 && ++index[i] == shape[i]) index[i--] = 0;
    if (i < 0) return;
  }
}

// Calls f with a zero of the type in which `dtype` is stored: f64, i64, i32, u8 or bool.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64: return f(double{});
    case DType::kI64: return f(std::int64_t{});
    case DType::kI32: return f(std::int32_t{});
    case DType::kU8:
    case DType::kBool: return f(std::uint8_t{});
    default:
      TRACESTEP_CHECK(false, "reference: {} is not supported; convert the program with as_float64",
                      name_of(dtype));
  }
}

// Returns the element of an index operand as a number, whichever integer type it has.
inline std::int64_t integer_at(const TensorRef& tensor, const Dims& index) {
  if (tensor.dtype == DType::kI64) return View<std::int64_t>(tensor)[index];
  if (tensor.dtype == DType::kI32) return View<std::int32_t>(tensor)[index];
  return View<std::uint8_t>(tensor)[index];
}

// Returns the index. Throws Error{kUsage} unless 0 <= index < size, and names its `position`.
inline std::int64_t checked_index(const char* op, std::int64_t index, const Dims& position,
                                  std::int64_t size) {
  if (index < 0 || index >= size) {
    fail_usage({About::Kind::kOp, op}, "index {} at position {} is outside [0, {})", index,
               position.str(), size);
  }
  return index;
}

// --- shapes and indices: appended() adds an entry at the end, replaced() changes one -----------
inline Dims appended(Dims index, std::int64_t last) {
  index.push_back(last);
  return index;
}
inline Dims replaced(Dims index, int axis, std::int64_t value) {
  index[axis] = value;
  return index;
}
// Returns the first `rank` entries of an index or a shape.
inline Dims prefix(const Dims& index, int rank) {
  return Dims(std::span(index.begin(), static_cast<std::size_t>(rank)));
}
// Returns the shape without its last axis, along which an op processes each row.
inline Shape rows_of(const Shape& shape) {
  return prefix(shape, shape.rank() - 1);
}
inline int axis_of(std::int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace tracestep::reference

// TensorRef: where a kernel finds an operand or puts a result.
#pragma once

#include "base/dims.h"
#include "base/dtype.h"

namespace tracestep {

struct TensorRef {
  void* data = nullptr;  // the first element (view offset applied); nullptr: an unread result
  DType dtype = DType::kF32;
  Shape shape;
  Strides strides;  // elements

  std::int64_t count() const { return shape.product(); }
  bool contiguous() const { return is_contiguous(shape, strides); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace tracestep

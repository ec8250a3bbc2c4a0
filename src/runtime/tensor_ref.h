// TensorRef: where a kernel reads an operand or writes a result.
#pragma once

#include "base/dims.h"
#include "base/dtype.h"

namespace tracestep {

struct TensorRef {
  // The address of the first element, with a view's offset applied; nullptr: the result is not
  // read.
  void* data = nullptr;
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

// Operand: an input with any strides, read in the row-major order of its shape. Contiguous
// dimensions are merged, so most operands become a single run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/tensor_ref.h"

namespace tracestep::cpu {

struct Walk {
  Shape shape;      // merged, without dimensions of size 1; at least one entry
  Strides strides;  // elements

  std::int64_t inner() const { return shape.back(); }
  std::int64_t inner_stride() const { return strides.back(); }
  bool is_dense() const { return shape.rank() == 1 && (shape[0] <= 1 || strides[0] == 1); }
};

inline Walk merged_walk(const Shape& shape, const Strides& strides) {
  Walk out;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const int last = out.shape.rank() - 1;
    if (last >= 0 && out.strides[last] == strides[i] * shape[i]) {
      out.shape[last] *= shape[i];
      out.strides[last] = strides[i];
    } else {
      out.shape.push_back(shape[i]);
      out.strides.push_back(strides[i]);
    }
  }
  if (out.shape.empty()) {
    out.shape.push_back(1);
    out.strides.push_back(1);
  }
  return out;
}

struct Operand {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t element_bytes = 4;
  Walk walk;
  bool is_dense = true;

  explicit Operand(const TensorRef& x) : Operand(x, x.shape, x.strides) {}
  // Reads the elements of `x` in another (permuted, merged) order.
  Operand(const TensorRef& x, const Shape& shape, const Strides& strides)
      : data(x.as<const std::byte>()),
        dtype(x.dtype),
        element_bytes(static_cast<std::int64_t>(size_of(x.dtype))),
        walk(merged_walk(shape, strides)),
        is_dense(walk.is_dense()) {}

  const std::byte* at(std::int64_t offset) const { return data + offset * element_bytes; }
};

// Calls run(address, stride, count) for elements begin <= i < begin + n, in order, once for each
// series of them that one stride connects.
template <class Run>
void for_runs(const Operand& x, std::int64_t begin, std::int64_t n, Run&& run) {
  const Shape& shape = x.walk.shape;
  const Strides& strides = x.walk.strides;
  const int inner = shape.rank() - 1;
  Dims at = Dims::filled(shape.rank(), 0);
  std::int64_t offset = 0;
  for (int d = inner; d >= 0 && begin > 0; --d) {
    at[d] = begin % shape[d];
    begin /= shape[d];
    offset += at[d] * strides[d];
  }
  while (n > 0) {
    const std::int64_t count = std::min(n, shape[inner] - at[inner]);
    run(x.at(offset), strides[inner], count);
    n -= count;
    if (n == 0) return;
    offset -= at[inner] * strides[inner];
    at[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
      offset += strides[d];
      if (++at[d] < shape[d]) break;
      offset -= at[d] * strides[d];
      at[d] = 0;
    }
  }
}

}  // namespace tracestep::cpu

// Runs one op on the CPU device, with operands laid out as a test likes and workspace of exactly
// the predicted size.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "base/half.h"
#include "base/host_tensor.h"
#include "ir/builder.h"
#include "ops/functions.h"

namespace tracestep::cpu_test {

// An operand in host memory: elements of `storage` seen through strides.
struct Operand {
  HostTensor storage;
  Shape shape;
  Strides strides;
  std::int64_t offset = 0;
};

inline Operand dense(HostTensor tensor) {
  const Shape shape = tensor.shape;
  return {std::move(tensor), shape, contiguous_strides(shape)};
}

// A tensor of `values`, rounded to `dtype` (f32, bf16, f16).
HostTensor floats(DType dtype, const Shape& shape, std::span<const float> values);
// A tensor of pseudo-random values in [-1, 1), the same for the same seed.
HostTensor random_floats(DType dtype, const Shape& shape, unsigned seed);
HostTensor integers(const Shape& shape, std::span<const std::int64_t> values);
// Returns all elements as doubles.
std::vector<double> values_of(const HostTensor& tensor);

struct RunOptions {
  int threads = 2;
  // Output i takes the storage of input `donated[i]` (-1: its own).
  std::vector<int> donated = {};
};
std::vector<HostTensor> run(std::string_view op, std::vector<Operand> inputs, Attrs attrs = {},
                            const RunOptions& options = {});

}  // namespace tracestep::cpu_test

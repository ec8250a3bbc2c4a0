#include "base/dims.h"

#include <fmt/ranges.h>

namespace tracestep {

void Dims::fail_rank() {
  fail_usage("shape", "more than {} dimensions", kMaxRank);
}

std::string Dims::str() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ","));
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  if (shape.product() == 0) return true;
  std::int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace tracestep

// A product of operands that are parts already.
#pragma once

#include "backends/cuda/split/parts.cuh"
#include "backends/cuda/split/product.h"

namespace tracestep::cuda {

struct PartsProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  SplitOperand a, b;  // the operands in float32: their infinities and NaNs are not in parts
  SplitParts a_parts, b_parts;
  SplitTilesPlan tiles;
  float* sums = nullptr;  // a result for each share of K, to be added up
  const float* c = nullptr;
  float* y = nullptr;
};
cudaError_t multiply_parts(const PartsProduct& product, const LaunchStream& stream);

}  // namespace tracestep::cuda

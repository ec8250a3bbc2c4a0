// Helpers for passes that compute rows in chunks, one chunk after the other.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep {

// Returns the axes of a product, by its op's record.
ProductAxes axes_of(const Program& program, const Node& product);

// Adds a product over the rows of a chunk to `total`, the sum over earlier chunks ("no value":
// there are none), in the dtype in which such operands are summed. `product` provides the op and
// its attributes; `adds`: the device can add within a product.
Val add_product(Builder& builder, const Node& product, std::vector<Val> operands, Val total,
                bool adds);
// The name of the op that multiplies two matrices and adds the product to a tensor.
inline constexpr const char* kProductAndSum = "matmul_add";

// Returns the first row of chunk `index`, if rows are divided into `chunks` of nearly equal size.
constexpr std::int64_t chunk_start(std::int64_t index, std::int64_t chunks, std::int64_t rows) {
  return index * rows / chunks;
}

}  // namespace tracestep

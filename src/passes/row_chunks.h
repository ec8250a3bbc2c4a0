// What passes share that compute rows in chunks, one chunk after the other.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep {

// The axes of a product as its record says.
ProductAxes axes_of(const Program& program, const Node& product);

// Adds a product over the rows of a chunk to `total`, the sum over the chunks before it ("no
// value": there are none), in the dtype in which such operands are summed. `product` has the op and
// the attributes; `adds`: whether the device adds within a product.
Val add_product(Builder& builder, const Node& product, std::vector<Val> operands, Val total,
                bool adds);
// The op that adds within a product.
inline constexpr const char* kProductAndSum = "matmul_add";

// The first row of chunk `index` of `chunks`, of nearly equal numbers of rows.
constexpr std::int64_t chunk_start(std::int64_t index, std::int64_t chunks, std::int64_t rows) {
  return index * rows / chunks;
}

}  // namespace tracestep

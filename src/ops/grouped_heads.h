// Arranges query heads that share a head of keys as rows of one product.
#pragma once

#include "ops/attention_sizes.h"
#include "ops/functions.h"

namespace tracestep::ops {

// Reshapes [..., H, T, n] to [..., H/group, group·T, n]: the rows of heads that share keys follow
// each other, so that a product reads each key once.
inline Val rows_grouped(Val x, std::int64_t group) {
  if (group == 1) return x;
  Shape shape = x.shape();
  const int rows = shape.rank() - 2;
  shape[rows - 1] /= group;
  shape[rows] *= group;
  return reshape(x, shape);
}
inline Val rows_separated(Val x, std::int64_t group) {
  if (group == 1) return x;
  Shape shape = x.shape();
  const int rows = shape.rank() - 2;
  shape[rows - 1] *= group;
  shape[rows] /= group;
  return reshape(x, shape);
}

// Masks scores [..., T, T]: they stay where the key is in the query's document, which begins at
// `starts` [..., T] (for all heads), and become -inf elsewhere.
Val in_document(Val scores, Val starts);

}  // namespace tracestep::ops

// Heads of queries that share a head of keys, as rows of one product.
#pragma once

#include "ops/attention_sizes.h"
#include "ops/functions.h"

namespace tracestep::ops {

// [..., H, T, n] as [..., H/group, group·T, n]: the rows of heads that share keys, one behind the
// other, so that a product reads each key once.
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

// Scores [..., T, T] where keys lie in the query's document, which begins at `starts` [..., T] (for
// each head the same), and -inf elsewhere.
Val in_document(Val scores, Val starts);

}  // namespace tracestep::ops

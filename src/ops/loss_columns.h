// The attribute of losses whose rows of logits may end in padding, columns that do not count.
#pragma once

#include <cstdint>

#include "ir/attrs.h"

namespace tracestep::ops {

// How many columns of logits [N,width] count, for a cross_entropy op with these attributes.
inline std::int64_t loss_columns(const Attrs& attrs, std::int64_t width) {
  const std::int64_t columns = attrs.integer("columns");
  return columns == 0 ? width : columns;
}

}  // namespace tracestep::ops

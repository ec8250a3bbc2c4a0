// Computes the strides of one view of some elements from those of another view of the same
// elements.
#pragma once

#include <optional>

#include "ir/op_def.h"

namespace tracestep {

// The dimensions of a view over common elements: their sizes, and `steps`, the distance between
// neighbours along each, in elements.
struct ViewDimensions {
  const Shape& sizes;
  const Strides& steps;
};

// Returns the strides in memory along the dimensions of `to`, given those along `from`; 0 along
// dimensions of size 1. nullopt: a dimension of `to` is not in `from`, or has no single stride.
std::optional<Strides> carry_strides(const ViewDimensions& from, const Strides& strides,
                                     const ViewDimensions& to);

// True if the result of `view`, a node that makes views, has all elements of its operand in the
// operand's order.
bool keeps_order(const Program& program, const Node& view);

}  // namespace tracestep

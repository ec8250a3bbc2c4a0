// The order of multi_adamw's operands: rates and factors first, then a group for each tensor.
#pragma once

#include <cstddef>

#include "ir/attrs.h"

namespace tracestep {

struct AdamwGroups {
  // Whether the call has operands grad_scale, apply, count.
  bool scaled = false, guarded = false, counted = false;
  bool shadowed = false;  // each group ends with the narrow copy of p
  std::size_t count = 0;  // tensors

  std::size_t scale() const { return 2; }
  std::size_t apply() const { return 2 + (scaled ? 1u : 0u); }
  std::size_t step_count() const { return apply() + (guarded ? 1u : 0u); }
  std::size_t inputs_each() const { return shadowed ? 5 : 4; }   // p, grad, m, v[, shadow]
  std::size_t outputs_each() const { return shadowed ? 4 : 3; }  // p, m, v[, shadow]
  std::size_t first_input(std::size_t tensor) const {
    return step_count() + (counted ? 1u : 0u) + tensor * inputs_each();
  }
  std::size_t first_output(std::size_t tensor) const { return tensor * outputs_each(); }
};

// `count` is rounded down when the last group is incomplete.
AdamwGroups adamw_groups(const Attrs& attrs, std::size_t inputs);

}  // namespace tracestep

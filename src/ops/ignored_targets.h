// Handles targets that do not count in a loss, for ops whose operand `count` is the number of those
// that do.
#pragma once

#include "ops/functions.h"

namespace tracestep::ops {

inline AttrDef ignore_index_attr() {
  return {"ignore_index", AttrKind::kInt, std::int64_t{-100},
          "with count: the target of rows that do not count, with a gradient of 0"};
}

// Returns the operand `count` of a call, by which sums over rows are divided; "no value": the
// number of rows is used.
inline Val count_of(const OpExpansion& e, std::size_t at) {
  return e.inputs.size() > at ? e.inputs[at] : Val{};
}

// Returns a mask that is true for ignored targets; "no value" if there cannot be any.
inline Val ignored(const OpExpansion& e, const Val& targets, const Val& count) {
  if (!count) return {};
  const auto value = static_cast<double>(e.attrs.integer("ignore_index"));
  return binary("eq", targets, fill(e.builder, value, {targets.dtype(), {}}));
}

// Returns `x` with 0 for ignored targets; x has a value for each target, or a row for each.
inline Val without_ignored(const OpExpansion& e, Val x, const Val& are_ignored) {
  if (!are_ignored) return x;
  Val mask = are_ignored;
  if (x.shape().rank() > mask.shape().rank()) {
    mask = broadcast_to(reshape(mask, {mask.dim(0), 1}), x.shape());
  }
  const Val zero = broadcast_to(fill(e.builder, 0.0, {x.dtype(), {}}), x.shape());
  return select(mask, zero, x);
}

}  // namespace tracestep::ops

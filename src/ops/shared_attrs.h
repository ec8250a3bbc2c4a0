// Attributes that several ops have.
#pragma once

#include <cstdint>

#include "ir/attrs.h"
#include "ir/op_def.h"

namespace tracestep::ops {

// Returns the attribute `lane`, for ops whose calls may run at the same time as other nodes
// (analysis/lanes.h).
inline AttrDef lane_attr() {
  return {"lane", AttrKind::kInt, AttrValue(std::int64_t{0}),
          "0: between the other nodes; 1 and 2: beside them"};
}

inline AttrDef batch_attr() {
  return {"batch", AttrKind::kInt, AttrValue(std::int64_t{0}),
          "neighbours with the same number are issued together; 0: alone"};
}

// Throws Error{kUsage} if a call names a lane that does not exist.
inline void require_lane(const OpCall& call) {
  const AttrValue* lane = call.attrs.find("lane");
  const std::int64_t number = lane == nullptr ? 0 : std::get<std::int64_t>(*lane);
  if (number >= 0 && number <= 2) return;
  fail_usage(call.op, "there is no lane {}; 0, 1 and 2 are possible", number);
}

// Returns how many columns of logits [N,width] count, for a cross_entropy op with these attributes:
// `columns`, if rows end in padding, else all.
inline std::int64_t loss_columns(const Attrs& attrs, std::int64_t width) {
  const std::int64_t columns = attrs.integer("columns");
  return columns == 0 ? width : columns;
}

// The attribute of sums whose result is float32 and not rounded to the operand's dtype.
inline constexpr const char* kWideSum = "wide";

}  // namespace tracestep::ops

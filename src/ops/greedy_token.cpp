// Finds the most likely token in a vector of logits, and stores it where the program's next run
// reads it.
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

std::vector<Type> token_types(const OpCall& c) {
  rules::require_floating(c, 0);
  rules::require_min_rank(c, 0, 1);
  const Shape& x = c.inputs[0].shape;
  if (x.back() < 1) fail_usage(c.op, "rows of {} logits; at least one", x.back());
  const Type token{DType::kI64, rules::rows_of(x)};
  return {token, token};
}

}  // namespace

void register_greedy_token() {
  register_op({.name = "greedy_token",
               .doc = "Index of the first of the largest along the last axis, of what is a number; "
                      "and the same, or -1 where an entry is infinite or NaN.",
               .inputs = {"logits"},
               .outputs = {"token", "checked"},
               .kernel_class = KernelClass::kReduction,
               .precision_class = PrecisionClass::kKeep,
               .infer = token_types,
               .accepts = rules::contiguous});
}

}  // namespace tracestep::ops

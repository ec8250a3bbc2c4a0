// Reverse-mode differentiation of a program, by the gradient rules of the op records.
#pragma once

#include <string>

#include "passes/loss_scaling.h"
#include "run/words.h"

namespace tracestep {

struct AutogradOptions {
  std::string loss = "loss";  // a rank-0 floating output
  GradientKind kind = GradientKind::kTransient;
  // Starts from the state "loss_scale" instead of 1, which multiplies all gradients by it.
  bool scaled = false;
  // Gradients that are states: what is widened last is kept, and added up, as it was before.
  bool narrow_sums = false;
  // Also differentiates with respect to floating inputs (tests, the attention benchmark).
  bool inputs = false;
};

// Appends the backward nodes. They inherit the path of their forward node; the sum of a value's
// gradients inherits that of its producer. Parameters that the loss does not depend on get zeros.
// Throws Error{kUsage} when there is no such loss or an op it depends on has no gradient rule.
Program autograd(const Program& program, const AutogradOptions& options = {});

// "grad." + name of the parameter.
inline constexpr std::string_view kGradientPrefix = "grad.";
std::string gradient_name(std::string_view parameter);

}  // namespace tracestep

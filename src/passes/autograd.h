// Reverse-mode differentiation of a program, by the gradient rules of the op records.
#pragma once

#include <string>

#include "passes/loss_scaling.h"
#include "run/words.h"

namespace tracestep {

struct AutogradOptions {
  std::string loss = "loss";  // a rank-0 floating output
  GradientKind kind = GradientKind::kTransient;
  // True: backward starts from the state "loss_scale" instead of 1, which scales all gradients by
  // it.
  bool scaled = false;
  // True: gradients in states are kept and added up in the dtype that they had before widening.
  bool narrow_sums = false;
  // True: also differentiates with respect to floating inputs (for tests and the attention
  // benchmark).
  bool inputs = false;
};

// Appends the backward nodes. They inherit the path of their forward node; the sum of a value's
// gradients inherits that of its producer. Parameters that the loss does not depend on get zeros.
// Throws Error{kUsage} when there is no such loss or an op it depends on has no gradient rule.
Program autograd(const Program& program, const AutogradOptions& options = {});

// The prefix of the output that holds the gradient of a parameter: "grad." + the parameter's name.
inline constexpr std::string_view kGradientPrefix = "grad.";
std::string gradient_name(std::string_view parameter);

}  // namespace tracestep

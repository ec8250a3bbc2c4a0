// Reverse-mode differentiation of a program, by the gradient rules of the op records.
#pragma once

#include <string>

#include "passes/loss_scaling.h"

namespace tracestep {

enum class GradientKind : std::uint8_t {
  kTransient,   // outputs "grad.NAME", alive until read
  kPersistent,  // state leaves "grad.NAME", overwritten by every run
  kAccumulate,  // state leaves "grad.NAME", added to by every run
};

struct AutogradOptions {
  std::string loss = "loss";  // a rank-0 floating output
  GradientKind kind = GradientKind::kTransient;
  // Starts from the state "loss_scale" instead of 1: all gradients come out that much larger.
  bool scaled = false;
  // Differentiates by floating inputs too (tests, the attention benchmark).
  bool inputs = false;
};

// Appends the backward nodes; nodes inherit the path of the forward node they belong to, sums at
// a fan-out that of the producer. Parameters that the loss does not depend on get zeros.
// Throws Error{kUsage}: no such loss, an op on the way without a gradient rule.
Program autograd(const Program& program, const AutogradOptions& options = {});

// "grad." + name of the parameter.
std::string gradient_name(std::string_view parameter);

}  // namespace tracestep

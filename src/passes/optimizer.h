// Turns gradients into parameter updates, as nodes of the same program.
#pragma once

#include <string>

#include "passes/loss_scaling.h"

namespace tracestep {

enum class OptimizerKind : std::uint8_t { kAdamw, kSgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double clip = 0.0;              // largest global gradient norm; 0: off
  bool report_norm = false;       // output "grad_norm" even without clipping
  LossScaling loss_scaling = {};  // gradients are scaled by the state "loss_scale"
};

// Uses up the outputs "grad.NAME" (or reads the state leaves of that name) and updates every
// parameter NAME. Adds the rank-0 float32 inputs "lr" and, for AdamW, "step_size" =
// lr·√(1-β2ᵗ)/(1-β1ᵗ), and the states "adamw.m.NAME" and "adamw.v.NAME".
//
// Under loss scaling gradients are divided by the scale where they are used (clipping and
// "grad_norm" see the true ones), and a step with an infinite or NaN gradient leaves parameters, m
// and v as they are. Such a step does not count for t: take the state "loss_scale.skipped_steps"
// off the number of steps.
Program optimizer(const Program& program, const OptimizerOptions& options);

}  // namespace tracestep

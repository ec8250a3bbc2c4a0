// Turns gradients into parameter updates, as nodes of the same program.
#pragma once

#include <string>

#include "passes/loss_scaling.h"

namespace tracestep {

enum class OptimizerKind : std::uint8_t { kAdamw, kSgd };

// From this norm on, gradients count as infinite: AdamW averages their squares, and the square of
// 2^64 is infinite in float32. So it is on every back end, whether it adds squares in float32 or in
// something wider.
inline constexpr double kGradNormLimit = 0x1p64;

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double clip = 0.0;              // largest global gradient norm; 0: off
  bool report_norm = false;       // output "grad_norm" even without clipping
  bool guard_finite = false;      // a step that is not finite changes nothing
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
//
// With `guard_finite` that holds without loss scaling too, for gradients whose norm is not below
// kGradNormLimit and for an infinite or NaN output "loss", where the program has one. Whoever reads
// "grad_norm" and "loss" knows which: see is_applied().
Program optimizer(const Program& program, const OptimizerOptions& options);
// Whether a guarded step with these outputs changed anything.
bool is_applied(double grad_norm, double loss);

}  // namespace tracestep

// Options that a run sets for its optimizer.
#pragma once

#include <cstdint>

#include "run/words.h"

namespace tracestep {

// The settings of dynamic loss scaling (passes/loss_scaling.h).
struct LossScaling {
  bool enabled = false;
  // The factor on the scale after `growth_interval` steps in a row without overflow.
  double growth = 2.0;
  double backoff = 0.5;                 // The factor on the scale after a step that overflowed.
  std::int64_t growth_interval = 2000;  // Steps without overflow until the scale grows.
  double floor = 0.0;                   // The least value of the scale.
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  DecayOn decay_on = DecayOn::kAll;
  Moments moments = Moments::kF32;
  double momentum = 0.95;  // Muon's decay of the mean of gradients.
  MuonScale muon_scale = MuonScale::kMatchAdamw;
  // The largest global gradient norm; larger gradients are scaled down to it. 0: off.
  double clip = 0.0;
  bool report_norm = false;       // True: the output "grad_norm" exists even without clipping.
  bool guard_finite = false;      // True: a step whose loss or gradient is not finite is skipped.
  LossScaling loss_scaling = {};  // Gradients are scaled by the state "loss_scale".
};

}  // namespace tracestep

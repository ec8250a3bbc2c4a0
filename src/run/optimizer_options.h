// Options that a run sets for its optimizer.
#pragma once

#include <cstdint>

#include "run/words.h"

namespace tracestep {

// Dynamic loss scaling (passes/loss_scaling.h).
struct LossScaling {
  bool enabled = false;
  double growth = 2.0;                  // factor after `growth_interval` good steps in a row
  double backoff = 0.5;                 // factor after a step that overflowed
  std::int64_t growth_interval = 2000;  // good steps
  double floor = 0.0;                   // the scale never falls below
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  DecayOn decay_on = DecayOn::kAll;
  Moments moments = Moments::kF32;
  double momentum = 0.95;  // Muon's decay of the mean of gradients
  MuonScale muon_scale = MuonScale::kMatchAdamw;
  double clip = 0.0;              // largest global gradient norm; 0: off
  bool report_norm = false;       // output "grad_norm" even without clipping
  bool guard_finite = false;      // a step with a loss or gradient that is not finite is skipped
  LossScaling loss_scaling = {};  // gradients are scaled by the state "loss_scale"
};

}  // namespace tracestep

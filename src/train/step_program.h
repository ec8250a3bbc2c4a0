// From a model and a mode to the program that runs.
#pragma once

#include "nn/transformer.h"
#include "passes/pipeline.h"
#include "runtime/device.h"

namespace tracestep {

struct StepSpec {
  ModelConfig model;
  BatchShape shape;
  Mode mode = Mode::kStep;
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
  GradientKind gradients = GradientKind::kTransient;
  OptimizerOptions optimizer = {};
  bool verify = false;
};

// Whether training in this precision scales the loss: float16 has too few exponents for gradients.
bool scales_loss(const Precision& precision);

// Inference builds logits alone; the other modes the loss on given targets.
Program forward_program(const StepSpec& spec);
// The options of all passes that the spec decides; `has_kernel` is left empty. The loss is scaled
// where an optimizer will use the gradients; transient gradients of `forward-backward` are those of
// the loss itself.
PipelineOptions pipeline_options(const StepSpec& spec);
// `forward` after all passes, for `device`'s kernels. A device that has no float32 (the reference)
// gets the same program in float64: parameters, states and rates as well.
Program lowered(const Program& forward, PipelineOptions options, const Device& device);
// The program after all passes, for `device`'s kernels.
Program step_program(const StepSpec& spec, const Device& device);
// The same for a device whose kernels are not known: every op but the always decomposed has one.
Program step_program(const StepSpec& spec);

}  // namespace tracestep

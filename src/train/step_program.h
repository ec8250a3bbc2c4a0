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
  GradientKind gradients = GradientKind::kTransient;
  OptimizerOptions optimizer = {};
  bool verify = false;
};

// Inference builds logits alone; the other modes the loss on given targets.
Program forward_program(const StepSpec& spec);
// Pipeline options for a device that has `has_kernel`.
PipelineOptions pipeline_options(const StepSpec& spec);
// The program after all passes, for `device`'s kernels.
Program step_program(const StepSpec& spec, const Device& device);
// The same for a device whose kernels are not known: every op but the always decomposed has one.
Program step_program(const StepSpec& spec);

}  // namespace tracestep

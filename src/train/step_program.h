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
// The options of all passes that the spec decides; `has_kernel` is left empty.
PipelineOptions pipeline_options(const StepSpec& spec);
// `forward` after all passes, for `device`'s kernels. A device that has no float32 (the reference)
// gets the same program in float64: parameters, states and rates as well.
Program lowered(const Program& forward, PipelineOptions options, const Device& device);
// The program after all passes, for `device`'s kernels.
Program step_program(const StepSpec& spec, const Device& device);
// The same for a device whose kernels are not known: every op but the always decomposed has one.
Program step_program(const StepSpec& spec);

}  // namespace tracestep

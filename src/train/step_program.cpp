#include "train/step_program.h"

namespace tracestep {
namespace {

Program lowered(const StepSpec& spec, PipelineOptions options) {
  Program out = run_pipeline(forward_program(spec), options).program;
  out.name = fmt::format("{} {}", name_of(spec.mode), spec.model.name);
  return out;
}

}  // namespace

Program forward_program(const StepSpec& spec) {
  return spec.mode == Mode::kInference ? logits_program(spec.model, spec.shape)
                                       : loss_program(spec.model, spec.shape);
}

PipelineOptions pipeline_options(const StepSpec& spec) {
  PipelineOptions options;
  options.granularity = spec.ops;
  options.mode = spec.mode;
  options.gradients = spec.gradients;
  options.optimizer = spec.optimizer;
  options.verify = spec.verify;
  return options;
}

Program step_program(const StepSpec& spec, const Device& device) {
  PipelineOptions options = pipeline_options(spec);
  options.has_kernel = [&device](const OpDef& op) { return device.find_kernel(op) != nullptr; };
  return lowered(spec, options);
}

Program step_program(const StepSpec& spec) {
  return lowered(spec, pipeline_options(spec));
}

}  // namespace tracestep

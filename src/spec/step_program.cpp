#include "spec/step_program.h"

#include "passes/as_float64.h"
#include "planning/needs.h"

namespace tracestep {
namespace {

Program named(Program program, const RunSpec& spec) {
  program.name = fmt::format("{} {}", name_of(spec.mode), spec.model.name);
  return program;
}

// Those of compile_passes() that do not run.
std::set<std::string> disabled_passes(const RunSpec& spec) {
  std::set<std::string> out;
  for (std::string& name : compile_passes()) {
    const bool runs =
        spec.compile_passes ? spec.compile_passes->contains(name) : has_arena(spec.executor);
    if (!runs) out.insert(std::move(name));
  }
  return out;
}

}  // namespace

bool scales_loss(const Precision& precision) {
  return precision.autocast == DType::kF16;
}

Program forward_program(const RunSpec& spec) {
  return spec.mode == Mode::kInference
             ? logits_program(spec.model, spec.shape, spec.precision.parameters)
             : loss_program(spec);
}

Program loss_program(const RunSpec& spec, LossOptions options) {
  options.weights = spec.precision.parameters;
  return loss_program(spec.model, spec.shape, options);
}

Program decode_program(const RunSpec& spec) {
  return decode_program(spec.model, spec.shape, spec.precision.parameters);
}

PipelineOptions pipeline_options(const RunSpec& spec) {
  PipelineOptions options;
  options.granularity = spec.ops;
  options.attention = spec.attention;
  options.mode = spec.mode;
  options.gradients = spec.gradients;
  options.optimizer = spec.optimizer;
  options.verify = spec.verify;
  options.autocast = spec.precision.autocast;
  options.disabled = disabled_passes(spec);
  options.compile = options.disabled.size() < compile_passes().size();
  options.optimizer.loss_scaling.enabled =
      scales_loss(spec.precision) &&
      (spec.mode == Mode::kStep || spec.gradients != GradientKind::kTransient);
  return options;
}

Program program_for(const Program& forward, PipelineOptions options, const Device& device) {
  options.has_kernel = [&device](const OpDef& op) { return device.has_kernel(op); };
  Program out = run_pipeline(forward, options).program;
  return device.supports(DType::kF32) ? out : as_float64(out);
}

Program step_program(const RunSpec& spec, const Device& device) {
  return named(program_for(forward_program(spec), pipeline_options(spec), device), spec);
}

Program step_program(const RunSpec& spec, DeviceKind kind) {
  PipelineOptions options = pipeline_options(spec);
  options.has_kernel = [kind](const OpDef& op) { return runs_whole(kind, op); };
  return named(run_pipeline(forward_program(spec), options).program, spec);
}

}  // namespace tracestep

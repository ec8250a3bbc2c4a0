#include "spec/step_program.h"

#include "passes/as_float64.h"
#include "planning/needs.h"

namespace tracestep {
namespace {

PipelineResult named(PipelineResult result, const RunSpec& spec) {
  result.program.name = fmt::format("{} {}", name_of(spec.mode), spec.model.name);
  return result;
}

// The passes of compile_passes() that do not run.
std::set<std::string> disabled_passes(const RunSpec& spec, const PipelineOptions& options) {
  std::set<std::string> out;
  for (std::string& name : compile_passes()) out.insert(std::move(name));
  if (spec.compile_passes) {
    for (const std::string& name : *spec.compile_passes) out.erase(name);
  } else if (has_arena(spec.executor)) {
    for (const std::string& name : paying_passes(options)) out.erase(name);
  }
  return out;
}

std::set<std::string> vectors_of(const ModelConfig& model) {
  std::set<std::string> out;
  const Program program = logits_program(model, {.batch = 1, .context = 1});
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kParameter && leaf.type.shape.rank() < 2) out.insert(leaf.name);
  }
  return out;
}

void check_division(const ModelConfig& model, int ranks) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"heads", model.heads},
                                                        {"kv_heads", model.key_heads()},
                                                        {"d_ff", model.d_ff},
                                                        {"vocab", model.vocab}};
  for (const auto& [name, size] : sizes) {
    if (size % ranks == 0) continue;
    throw Error(ErrorCode::kUsage, "parallel",
                fmt::format("{} ranks cannot divide the model's {} of {}", ranks, name, size),
                "give tp=N that divides heads, kv_heads, d_ff and vocab");
  }
}

}  // namespace

bool scales_loss(const Precision& precision) {
  return precision.autocast == DType::kF16;
}

BatchShape rank_shape(const RunSpec& spec) {
  BatchShape out = spec.shape;
  const int replicas = spec.parallel.replicas();
  if (spec.shape.batch % replicas != 0) {
    throw Error(ErrorCode::kUsage, "parallel",
                fmt::format("{} {} cannot have equal shares of a batch of {}", replicas,
                            spec.parallel.is_divided() ? "replicas" : "ranks", spec.shape.batch),
                "give a batch that they divide");
  }
  check_division(spec.model, spec.parallel.tensor);
  out.batch /= replicas;
  return out;
}

Program forward_program(const RunSpec& spec) {
  if (spec.mode == Mode::kInference) {
    return logits_program(spec.model, rank_shape(spec), spec.precision.parameters);
  }
  // The mean over the batch is the sum of the ranks' shares of it.
  const bool is_summed = spec.mode != Mode::kForward;
  return loss_program(spec, {.scale = is_summed ? 1.0 / spec.parallel.replicas() : 1.0});
}

Program loss_program(const RunSpec& spec, LossOptions options) {
  options.kind = spec.loss;
  options.weights = spec.precision.parameters;
  return loss_program(spec.model, rank_shape(spec), options);
}

Program decode_program(const RunSpec& spec, std::int64_t count) {
  return decode_program(spec.model, spec.shape, spec.precision.parameters, count);
}

PipelineOptions pipeline_options(const RunSpec& spec) {
  PipelineOptions options;
  options.granularity = spec.ops;
  options.attention = spec.attention;
  options.mode = spec.mode;
  options.gradients = spec.gradients;
  options.updates = spec.updates;
  options.offload = spec.offload;
  options.recompute = spec.recompute;
  options.loss_chunks = spec.loss_chunks;
  options.parallel = spec.parallel;
  options.arena = has_arena(spec.executor);
  options.optimizer = spec.optimizer;
  if (spec.optimizer.weight_decay != 0.0 && spec.optimizer.decay_on == DecayOn::kMatrices) {
    options.optimizer.undecayed = vectors_of(spec.model);
  }
  options.verify = spec.verify;
  options.autocast = spec.precision.autocast;
  options.by_parts = spec.precision.split;
  options.compile = true;  // but for those of its passes that are disabled
  options.disabled = disabled_passes(spec, options);
  if (spec.compile_passes) options.asked = *spec.compile_passes;
  options.optimizer.loss_scaling.enabled =
      scales_loss(spec.precision) &&
      (spec.mode == Mode::kStep || spec.gradients != GradientKind::kTransient);
  return options;
}

namespace {

PipelineResult passed(const Program& forward, PipelineOptions options, const Device& device) {
  options.has_kernel = [&device](const OpDef& op) { return device.has_kernel(op); };
  options.traits = device.traits();
  PipelineResult out = run_pipeline(forward, options);
  if (!device.supports(DType::kF32)) out.program = as_float64(out.program);
  return out;
}

}  // namespace

Program program_for(const Program& forward, PipelineOptions options, const Device& device) {
  return passed(forward, std::move(options), device).program;
}

PipelineResult step_passes(const RunSpec& spec, const Device& device) {
  return named(passed(forward_program(spec), pipeline_options(spec), device), spec);
}

PipelineResult step_passes(const RunSpec& spec, const DeviceTraits& traits) {
  PipelineOptions options = pipeline_options(spec);
  options.has_kernel = [kind = traits.kind](const OpDef& op) { return runs_whole(kind, op); };
  options.traits = traits;
  return named(run_pipeline(forward_program(spec), options), spec);
}

Program step_program(const RunSpec& spec, const Device& device) {
  return step_passes(spec, device).program;
}

Program step_program(const RunSpec& spec, const DeviceTraits& traits) {
  return step_passes(spec, traits).program;
}

}  // namespace tracestep

#include "spec/step_program.h"

#include "captured/captured_model.h"
#include "ops/attention_sizes.h"
#include "passes/form_passes.h"
#include "planning/needs.h"
#include "spec/check_run.h"
#include "spec/micro_batches.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

PipelineResult named(PipelineResult result, const RunSpec& spec) {
  result.program.name = fmt::format("{} {}", name_of(spec.mode), spec.model.name);
  return result;
}

void check_division(const ModelConfig& model, int ranks) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"heads", model.heads},
                                                        {"kv_heads", model.key_heads()},
                                                        {"d_ff", model.d_ff},
                                                        {"vocab", model.vocab}};
  for (const auto& [name, size] : sizes) {
    if (size % ranks == 0) continue;
    throw Error(ErrorCode::kUsage, "parallel"_field,
                fmt::format("{} ranks cannot divide the model's {} of {}", ranks, name, size),
                "give tp=N that divides heads, kv_heads, d_ff and vocab");
  }
}

}  // namespace

BatchShape rank_shape(const RunSpec& spec) {
  BatchShape out = spec.shape;
  if (const auto& module = spec.model.captured) return {module->batch, module->context};
  const int replicas = spec.parallel.replicas();
  if (spec.shape.batch % replicas != 0) {
    throw Error(ErrorCode::kUsage, "parallel"_field,
                fmt::format("{} {} cannot have equal shares of a batch of {}", replicas,
                            spec.parallel.is_divided() ? "replicas" : "ranks", spec.shape.batch),
                "give a batch that they divide");
  }
  check_division(spec.model, spec.parallel.tensor);
  out.batch /= replicas;
  return out;
}

std::optional<Error> refusal_of(const RunSpec& spec) {
  try {
    check_run(spec);
    rank_shape(spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    return error;
  }
  return std::nullopt;
}

Program forward_program(const RunSpec& spec) {
  if (spec.mode == Mode::kInference) {
    if (spec.packed) fail_usage("packed", "logits alone are of one text; give another mode");
    return logits_program(spec.model, rank_shape(spec), spec.precision.parameters);
  }
  // The mean over the batch is the sum of the ranks' shares of it.
  const bool is_summed = spec.mode != Mode::kForward;
  return loss_program(spec, {.scale = is_summed ? 1.0 / spec.parallel.replicas() : 1.0});
}

Program loss_program(const RunSpec& spec, LossOptions options) {
  if (spec.packed && spec.model.captured != nullptr) {
    fail_usage("packed", "{} is a module of its own program, whose rows are texts",
               spec.model.name);
  }
  options.kind = spec.loss;
  options.packed = spec.packed;
  options.masks_targets = spec.masks_targets;
  options.weights = spec.precision.parameters;
  return loss_program(spec.model, rank_shape(spec), options);
}

Program decode_program(const RunSpec& spec, std::int64_t count) {
  return decode_program(spec.model, spec.shape, spec.precision.parameters, count);
}

Program slide_program(const RunSpec& spec) {
  return slide_program(spec.model, spec.shape, spec.precision.parameters);
}

Program greedy_program(const RunSpec& spec) {
  return greedy_program(spec.model, spec.shape, spec.precision.parameters);
}

namespace {

// The program of the model on one token, with adapters and frozen weights if it has some.
Program trained_model(const RunSpec& spec) {
  const Program whole = spec.model.captured != nullptr
                            ? spec.model.captured->program
                            : logits_program(spec.model, {.batch = 1, .context = 1});
  return trains_part(spec) ? adapt(whole, spec.lora, spec.frozen) : whole;
}

// The number of elements of frozen weights in products, where each product counts its weight.
double frozen_in_products(const RunSpec& spec) {
  const Program program = trained_model(spec);
  double out = 0;
  for (const Node& node : program.nodes) {
    if (!node.op->product) continue;
    const Value& weight = program.value(node.inputs[1]);
    const bool is_frozen = weight.leaf == LeafKind::kConstant;
    if (is_frozen) out += static_cast<double>(weight.type.count());
  }
  return out;
}

}  // namespace

std::int64_t trained_parameters(const RunSpec& spec) {
  return parameter_count(trained_model(spec));
}

double needed_flops(const RunSpec& spec) {
  const auto batch = static_cast<double>(spec.shape.batch * micro_batches_of(spec)),
             context = static_cast<double>(spec.shape.context);
  const auto documents = static_cast<double>(spec.packed ? kUsualDocuments : 1);  // in a row
  const double forward = forward_flops(spec.model, batch * documents, context / documents);
  const bool has_backward = spec.mode == Mode::kForwardBackward || spec.mode == Mode::kStep;
  if (!has_backward) return forward;
  if (!trains_part(spec) || spec.model.captured != nullptr) return 3 * forward;
  return 3 * forward - 2 * batch * context * frozen_in_products(spec);
}

namespace {

PipelineResult passed(const Program& forward, const RunSpec& spec, const Device& device,
                      PassContext context) {
  context.has_kernel = [&device](const OpDef& op) { return device.has_kernel(op); };
  context.traits = device.traits();
  PipelineResult out = run_pipeline(forward, spec, context);
  if (!device.supports(DType::kF32)) out.program = as_float64(out.program);
  return out;
}

PipelineResult passed(const Program& forward, const RunSpec& spec, const DeviceTraits& traits,
                      PassContext context) {
  context.has_kernel = [kind = traits.kind](const OpDef& op) { return runs_whole(kind, op); };
  context.traits = traits;
  return run_pipeline(forward, spec, context);
}

DeviceTraits traits_of(const Device& device) {
  return device.traits();
}
DeviceTraits traits_of(const DeviceTraits& traits) {
  return traits;
}

// Returns the step's program after all passes, with their reports. `Place`: a device, or its
// traits.
template <class Place>
PipelineResult passes_of_step(const RunSpec& spec, const Place& place, PassContext context) {
  context.traits = traits_of(place);
  const auto make = [&place](const Program& program, const RunSpec& run, const PassContext& own) {
    return passed(program, run, place, own);
  };
  const bool is_one = micro_batches_of(spec) == 1;
  return named(is_one ? make(forward_program(spec), spec, context)
                      : step_of_micro_batches(spec, context, make),
               spec);
}

}  // namespace

Program program_for(const Program& forward, const RunSpec& spec, const Device& device,
                    const PassContext& context) {
  return passed(forward, spec, device, context).program;
}

Program program_for(const Program& forward, const RunSpec& spec, const DeviceTraits& traits,
                    const PassContext& context) {
  return passed(forward, spec, traits, context).program;
}

PipelineResult step_passes(const RunSpec& spec, const Device& device, const PassContext& context) {
  return passes_of_step(spec, device, context);
}

PipelineResult step_passes(const RunSpec& spec, const DeviceTraits& traits) {
  return passes_of_step(spec, traits, {});
}

Program step_program(const RunSpec& spec, const Device& device) {
  return step_passes(spec, device).program;
}

Program step_program(const RunSpec& spec, const DeviceTraits& traits) {
  return step_passes(spec, traits).program;
}

}  // namespace tracestep

#include "nn/captured_programs.h"

#include "ir/rewrite.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

// Returns the program with `outputs` alone; throws for a batch, context or dtype that it lacks.
Program captured_part(const ModelConfig& config, BatchShape shape, DType weights,
                      const std::vector<std::string>& outputs) {
  const CapturedModel& model = *config.captured;
  if (shape.batch != model.batch || shape.context != model.context) {
    fail_usage("program"_field, "{} was captured with batch {} and context {}, not {} and {}",
               model.name, model.batch, model.context, shape.batch, shape.context);
  }
  if (weights != model.weights) {
    fail_usage("precision"_field, "{} was captured with parameters of {}, not {}", model.name,
               name_of(model.weights), name_of(weights));
  }
  return captured_program(model, outputs);
}

}  // namespace

ModelConfig captured_config(std::shared_ptr<const CapturedModel> model) {
  // No preset has the name: results are held against the sizes of the one that they name.
  const bool is_taken = find_model(model->name) != nullptr;
  ModelConfig out{.name = is_taken ? "module " + model->name : model->name,
                  .source = model->folder.string(),
                  .vocab = model->vocab,
                  .layers = model->blocks};
  out.captured = std::move(model);
  return out;
}

Program captured_logits(const ModelConfig& config, BatchShape shape, DType weights) {
  const bool has_logits = config.captured->program.find_output(kLogitsOutput) != kNoValue;
  return captured_part(config, shape, weights, {has_logits ? kLogitsOutput : kLossOutput});
}

Program captured_loss(const ModelConfig& config, BatchShape shape, const LossOptions& options) {
  const bool is_own = options.kind == LossKind::kCrossEntropy;
  std::vector<std::string> outputs{is_own ? kLossOutput : kLogitsOutput};
  if (is_own && options.with_logits) outputs.emplace_back(kLogitsOutput);
  const Program own = captured_part(config, shape, options.weights, outputs);
  if (is_own && options.scale == 1.0) return own;
  Rewriter r(own, "loss");
  for (const Node& node : own.nodes) r.copy(node);
  Builder& b = r.builder();
  const auto scope = b.scope("loss");
  Val loss = r.map(own.find_output(outputs.front()));
  if (!is_own) {
    Dims axes;
    for (int i = 0; i < loss.shape().rank(); ++i) axes.push_back(i);
    loss = ops::sum(loss, axes);
  }
  if (options.scale != 1.0) loss = ops::affine(loss, options.scale);
  b.output(kLossOutput, loss);
  if (options.with_logits) b.output(kLogitsOutput, r.map(own.find_output(kLogitsOutput)));
  return b.finish();
}

void refuse_captured(const ModelConfig& config, std::string_view why) {
  if (config.captured == nullptr) return;
  fail_usage("program"_field, "{} is a module of its own program: {}", config.name, why);
}

}  // namespace tracestep

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/output_file.h"
#include "exec/executor.h"
#include "passes/autograd.h"
#include "session/session.h"
#include "spec/step_program.h"
#include "tokens/tokenizer.h"
#include "train/evaluate.h"
#include "train/step_inputs.h"
#include "train/text_parts.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"
#include "weights/weights.h"

namespace tracestep {
namespace {

RunSpec in_mode(RunSpec run, Mode mode, BatchShape shape) {
  run.mode = mode;
  run.shape = shape;
  return run;
}

// Sets the weights from `options.init` or the seed; returns the first weight that is not finite.
std::optional<NotFinite> load(Store& store, const EvalOptions& options) {
  if (options.run.model.captured != nullptr) {
    std::optional<SavedTensors> init;
    if (!options.init.empty()) init = open_weights(options.init).tensors;
    start_captured(WholeTensors(store), options.run, init ? &*init : nullptr);
    for (const std::string& name : store.names(LeafKind::kParameter)) {
      if (auto bad = find_not_finite(name, store.get(name))) return bad;
    }
    return std::nullopt;
  }
  if (options.init.empty()) {
    initialize_parameters(store, options.run.seed);
    start_adapters(WholeTensors(store), options.run);
    return std::nullopt;
  }
  const SavedTensors file = open_weights(options.init).tensors;
  load_weights(WholeTensors(store), options.run, file);
  return find_not_finite(file);
}

// Divides the gradient by the loss scale. This is exact, as the scale is a power of two.
void unscale(HostTensor& gradient) {
  const auto divide = [](auto values) {
    for (auto& x : values) x /= static_cast<std::decay_t<decltype(x)>>(kInitialLossScale);
  };
  if (gradient.dtype == DType::kF64) {
    divide(gradient.as<double>());
  } else {
    divide(gradient.as<float>());
  }
}

using SetInputs = std::function<void(Executor& executor)>;

// Writes a file with the gradients for the inputs that `set_inputs` sets, under the parameters'
// names; returns the first that is not finite.
std::optional<NotFinite> write_gradients(const RankStores& stores, const EvalOptions& options,
                                         BatchShape shape, const SetInputs& set_inputs) {
  RunSpec run = in_mode(options.run, Mode::kForwardBackward, shape);
  const bool scaled = scales_loss(run.precision);
  run.optimizer.loss_scaling.enabled = scaled;
  Store& store = stores.first();
  const auto backward =
      stores.executor_of_first(run, program_for(loss_program(run), run, store.device()));
  initialize_states(store);
  set_inputs(*backward);
  backward->run();
  std::map<std::string, HostTensor> gradients;
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    HostTensor gradient = backward->output(gradient_name(name));
    if (scaled) unscale(gradient);
    gradients.emplace(name, std::move(gradient));
  }
  const TensorMap tensors(gradients.begin(), gradients.end());
  write_safetensors(options.gradients, tensors);
  return find_not_finite(tensors);
}

// The bytes of text that a batch's targets stand for; nullopt: those of some token are not known.
std::optional<std::int64_t> bytes_of(const Batch& batch, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  std::int64_t out = 0;
  for (const std::int64_t token : batch.targets.as<std::int64_t>()) {
    if (token == kNoTarget) continue;
    const auto bytes = tokenizer->byte_count(token);
    if (!bytes) return std::nullopt;
    out += *bytes;
  }
  return out;
}

// Evaluates a captured module on its example, as one batch.
EvalResult evaluate_example(Device& device, const EvalOptions& options) {
  const bool want_logits = !options.logits.empty();
  const RunSpec run = in_mode(options.run, Mode::kInference, options.run.shape);
  const RankStores stores(device);
  const auto set_inputs = [&](Executor& executor) {
    for (const auto& [name, value] : captured_inputs(run, executor.program(), options.inputs)) {
      executor.set_input(name, value);
    }
  };
  const auto forward = stores.executor_of_first(
      run, program_for(loss_program(run, {.with_logits = want_logits}), run, device));
  EvalResult out;
  out.batches = 1;
  out.tokens = run.shape.batch * run.shape.context;
  out.not_finite = load(stores.first(), options);
  set_inputs(*forward);
  forward->run();
  out.loss = out.first_batch_loss = forward->scalar("loss");
  out.perplexity = std::exp(out.loss);
  if (want_logits) write_safetensors(options.logits, {{"logits", forward->output("logits")}});
  if (!out.not_finite && !std::isfinite(out.loss)) out.not_finite = find_not_finite(*forward);
  if (options.gradients.empty()) return out;
  const auto bad = write_gradients(stores, options, run.shape, set_inputs);
  if (!out.not_finite) out.not_finite = bad;
  return out;
}

}  // namespace

EvalResult evaluate(Device& device, const EvalOptions& options, TokenSourcePtr tokens,
                    const std::function<void(std::int64_t batches)>& before_batch) {
  if (!options.logits.empty()) check_writable(options.logits, "logits"_field);
  if (!options.gradients.empty()) check_writable(options.gradients, "gradients"_field);
  if (tokens == nullptr) return evaluate_example(device, options);
  check_vocabulary(*tokens, options.run.model.vocab);
  const std::vector<TextPart> parts = parts_for(options.run, tokens, options.batches);
  const RankStores stores(device);
  const bool want_logits = !options.logits.empty();
  const auto forward_of = [&](BatchShape shape) {
    const RunSpec run = in_mode(options.run, Mode::kInference, shape);
    return stores.executor_of_first(
        run, program_for(loss_program(run, {.with_logits = want_logits}), run, device));
  };
  auto forward = forward_of(parts.front().shape);
  EvalResult out;
  out.not_finite = load(stores.first(), options);
  out.batches = std::ssize(parts);
  std::int64_t bytes = 0;
  bool has_text = true;
  double total = 0.0;
  BatchShape shape = parts.front().shape;
  for (const TextPart& part : parts) {
    if (before_batch) before_batch(out.batches);
    const bool is_alike = part.shape.batch == shape.batch && part.shape.context == shape.context;
    if (!is_alike) forward = forward_of(shape = part.shape);
    const Batch batch = batch_of(part, *tokens);
    set_batch(*forward, options.run, batch);
    set_batch_number(*forward, options.run, 0);
    forward->run();
    const double loss = forward->scalar("loss");
    total += loss * static_cast<double>(batch.counted);
    out.tokens += batch.counted;
    const auto more = bytes_of(batch, options.tokenizer.get());
    bytes += more.value_or(0);
    has_text = has_text && more.has_value();
    if (&part == &parts.front()) {
      out.first_batch_loss = loss;
      if (want_logits) write_safetensors(options.logits, {{"logits", forward->output("logits")}});
    }
    if (!out.not_finite && !std::isfinite(loss)) out.not_finite = find_not_finite(*forward);
  }
  out.loss = total / static_cast<double>(std::max<std::int64_t>(out.tokens, 1));
  out.perplexity = std::exp(out.loss);
  if (has_text && bytes > 0) {
    const double bits = out.loss * static_cast<double>(out.tokens) / std::numbers::ln2;
    out.bytes = bytes;
    out.bits_per_byte = bits / static_cast<double>(bytes);
  }
  if (options.gradients.empty()) return out;
  const TextPart& first = parts.front();
  const auto bad = write_gradients(stores, options, first.shape, [&](Executor& executor) {
    set_batch(executor, options.run, batch_of(first, *tokens));
    set_batch_number(executor, options.run, 0);
  });
  if (!out.not_finite) out.not_finite = bad;
  return out;
}

}  // namespace tracestep

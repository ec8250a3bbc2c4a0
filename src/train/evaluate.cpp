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
#include "train/loop.h"
#include "train/model_store.h"
#include "train/tokenizer.h"
#include "train/weights.h"

namespace tracestep {
namespace {

RunSpec in_mode(RunSpec run, Mode mode, BatchShape shape) {
  run.mode = mode;
  run.shape = shape;
  return run;
}

// Rows one behind the other: what one run of a program reads.
struct Part {
  std::int64_t start = 0;  // its first token
  BatchShape shape = {};

  std::int64_t tokens() const { return shape.batch * shape.context; }
};

// Every token once: whole batches, then the rows that are left, then a row as long as what is left.
std::vector<Part> parts_of(const EvalOptions& options, const TokenSource& tokens) {
  const auto [batch, context] = options.run.shape;
  const std::int64_t last = tokens.size() - 1;  // has no token that follows it
  if (last < 1) {
    fail_input("eval", "{} has {} token; the loss of one needs the next", tokens.name(),
               tokens.size());
  }
  std::vector<Part> out;
  std::int64_t at = 0;
  const auto add = [&](BatchShape shape) {
    out.push_back({at, shape});
    at += out.back().tokens();
  };
  const auto is_wanted = [&] { return options.batches == 0 || std::ssize(out) < options.batches; };
  while (is_wanted() && at < last) {
    const std::int64_t rows = std::min(batch, (last - at) / context);
    add(rows > 0 ? BatchShape{rows, context} : BatchShape{1, last - at});
  }
  return out;
}

Batch batch_of(const Part& part, const TokenSource& tokens) {
  const auto [rows, context] = part.shape;
  std::vector<std::int64_t> read(static_cast<std::size_t>(part.tokens() + 1));
  tokens.read(part.start, read);
  Batch out{HostTensor::zeros(DType::kI64, {rows, context}),
            HostTensor::zeros(DType::kI64, {rows, context})};
  std::copy(read.begin(), read.end() - 1, out.tokens.as<std::int64_t>().begin());
  std::copy(read.begin() + 1, read.end(), out.targets.as<std::int64_t>().begin());
  return out;
}

// Returns the first weight that is not finite.
std::optional<NotFinite> load(Store& store, const EvalOptions& options) {
  if (options.init.empty()) {
    initialize_parameters(store, options.run.seed);
    return std::nullopt;
  }
  const SavedTensors file = open_weights(options.init).tensors;
  load_parameters(store, file);
  return find_not_finite(file);
}

void set_batch(Executor& executor, const Batch& batch) {
  executor.set_input("tokens", batch.tokens);
  executor.set_input("targets", batch.targets);
}

// Exact, as the scale is a power of two.
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

// The first batch's gradients, under the parameters' names; returns the first that is not finite.
std::optional<NotFinite> write_gradients(const RankStores& stores, const EvalOptions& options,
                                         const Part& part, const TokenSource& tokens) {
  RunSpec run = in_mode(options.run, Mode::kForwardBackward, part.shape);
  const bool scaled = scales_loss(run.precision);
  run.optimizer.loss_scaling.enabled = scaled;
  Store& store = stores.first();
  const auto backward =
      stores.executor_of_first(run, program_for(loss_program(run), run, store.device()));
  initialize_states(store);
  set_batch(*backward, batch_of(part, tokens));
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

// The bytes of a batch's targets as text; nullopt: that of one is not known.
std::optional<std::int64_t> bytes_of(const Batch& batch, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return std::nullopt;
  std::int64_t out = 0;
  for (const std::int64_t token : batch.targets.as<std::int64_t>()) {
    const auto bytes = tokenizer->byte_count(token);
    if (!bytes) return std::nullopt;
    out += *bytes;
  }
  return out;
}

}  // namespace

EvalResult evaluate(Device& device, const EvalOptions& options, TokenSourcePtr tokens,
                    const std::function<void(std::int64_t batches)>& before_batch) {
  if (!options.logits.empty()) check_writable(options.logits, "logits");
  if (!options.gradients.empty()) check_writable(options.gradients, "gradients");
  check_vocabulary(*tokens, options.run.model.vocab);
  const std::vector<Part> parts = parts_of(options, *tokens);
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
  for (const Part& part : parts) {
    if (before_batch) before_batch(out.batches);
    const bool is_alike = part.shape.batch == shape.batch && part.shape.context == shape.context;
    if (!is_alike) forward = forward_of(shape = part.shape);
    const Batch batch = batch_of(part, *tokens);
    set_batch(*forward, batch);
    forward->run();
    const double loss = forward->scalar("loss");
    total += loss * static_cast<double>(part.tokens());
    out.tokens += part.tokens();
    const auto more = bytes_of(batch, options.tokenizer.get());
    bytes += more.value_or(0);
    has_text = has_text && more.has_value();
    if (&part == &parts.front()) {
      out.first_batch_loss = loss;
      if (want_logits) write_safetensors(options.logits, {{"logits", forward->output("logits")}});
    }
    if (!out.not_finite && !std::isfinite(loss)) out.not_finite = find_not_finite(*forward);
  }
  out.loss = total / static_cast<double>(out.tokens);
  out.perplexity = std::exp(out.loss);
  if (has_text && bytes > 0) {
    const double bits = out.loss * static_cast<double>(out.tokens) / std::numbers::ln2;
    out.bytes = bytes;
    out.bits_per_byte = bits / static_cast<double>(bytes);
  }
  if (options.gradients.empty()) return out;
  const auto bad = write_gradients(stores, options, parts.front(), *tokens);
  if (!out.not_finite) out.not_finite = bad;
  return out;
}

}  // namespace tracestep

#include "train/loop.h"

#include <chrono>
#include <cmath>
#include <fstream>

#include "base/log.h"
#include "exec/eager.h"
#include "train/checkpoint_files.h"
#include "train/fingerprint.h"
#include "train/log_file.h"
#include "train/model_store.h"
#include "train/output_file.h"
#include "train/step_program.h"

namespace tracestep {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Everything a running training holds: the store, and the programs that work on it.
class Trainer {
 public:
  Trainer(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
          TokenSourcePtr validation)
      : options_(options), store_(device), batches_(tokens, batch_options()) {
    options_.schedule.check();
    options_.optimizer.loss_scaling.enabled = scales_loss(options_.model.precision);
    build(device);
    if (validation) {
      validation_.emplace(validation, Batches::Options{options.shape.batch, options.shape.context,
                                                       Order::kSequential, 0});
      StepSpec spec = spec_of(Mode::kForwardBackward);
      PipelineOptions evaluate = pipeline_options(spec);
      evaluate.mode = Mode::kInference;  // the loss, nothing kept for backward
      evaluator_ = std::make_unique<EagerExecutor>(
          store_, lowered(loss_program(options.model, options.shape), evaluate, device));
    }
  }

  Store& store() { return store_; }

  TrainStep step(std::int64_t index) {
    const auto start = std::chrono::steady_clock::now();
    TrainStep out;
    out.step = index + 1;
    out.lr = options_.schedule.at(out.step);
    if (is_scaled()) {
      out.loss_scale = state_value(kLossScale);
      out.skipped_steps = skipped_steps();  // those before this one: what set_rates() asks for
    }
    if (options_.accumulate > 1) {
      accumulate(index, out);
    } else {
      set_batch(*step_, batches_.at(index));
      set_rates(*step_, out);
      step_->run();
      out.loss = step_->scalar("loss");
      out.grad_norm = step_->scalar("grad_norm");
      step_->release_outputs();
    }
    if (is_scaled()) out.skipped_steps = skipped_steps();
    const std::int64_t tokens = options_.shape.batch * options_.shape.context * options_.accumulate;
    out.tokens_per_s = static_cast<double>(tokens) / seconds_since(start);
    return out;
  }

  double validate() {
    TRACESTEP_CHECK(validation_.has_value(), "there is no text to validate on");
    double total = 0.0;
    for (std::int64_t i = 0; i < options_.validation_batches; ++i) {
      set_batch(*evaluator_, validation_->at(i));
      evaluator_->run();
      total += evaluator_->scalar("loss");
    }
    evaluator_->release_outputs();
    return total / static_cast<double>(options_.validation_batches);
  }

  bool can_validate() const { return evaluator_ != nullptr; }

 private:
  Batches::Options batch_options() const {
    return {options_.shape.batch, options_.shape.context, options_.order, options_.seed};
  }

  bool is_scaled() const { return options_.optimizer.loss_scaling.enabled; }

  double state_value(std::string_view name) const {
    return widened(store_.get(name)).as<double>()[0];
  }
  std::int64_t skipped_steps() const {
    return static_cast<std::int64_t>(state_value(kSkippedSteps));
  }

  StepSpec spec_of(Mode mode) const {
    StepSpec spec{options_.model, options_.shape, mode, options_.ops, options_.attention};
    spec.optimizer = options_.optimizer;
    spec.optimizer.report_norm = true;
    return spec;
  }

  void build(Device& device) {
    if (options_.accumulate == 1) {
      step_ = std::make_unique<EagerExecutor>(store_, step_program(spec_of(Mode::kStep), device));
      return;
    }
    // The first micro-batch overwrites the gradients, the others add; then one update.
    const double scale = 1.0 / static_cast<double>(options_.accumulate);
    const auto micro = [&](GradientKind kind) {
      StepSpec spec = spec_of(Mode::kForwardBackward);
      spec.gradients = kind;
      return std::make_unique<EagerExecutor>(
          store_, lowered(loss_program(options_.model, options_.shape, false, scale),
                          pipeline_options(spec), device));
    };
    first_ = micro(GradientKind::kPersistent);
    next_ = micro(GradientKind::kAccumulate);
    step_ = std::make_unique<EagerExecutor>(store_, update_program(device));
  }

  // The optimizer alone, on the gradient states.
  Program update_program(Device& device) const {
    Builder b("update");
    for (const std::string& name : store_.names(LeafKind::kParameter)) {
      const Type& type = store_.at(name).type;
      b.parameter(name, type);
      b.state(gradient_name(name), type, Role::kGradient);
    }
    OptimizerOptions options = options_.optimizer;
    options.report_norm = true;
    PipelineOptions lower;
    lower.granularity = options_.ops;
    lower.mode = Mode::kInference;
    return lowered(optimizer(b.finish(), options), lower, device);
  }

  void accumulate(std::int64_t index, TrainStep& out) {
    for (std::int64_t i = 0; i < options_.accumulate; ++i) {
      Executor& micro = i == 0 ? *first_ : *next_;
      set_batch(micro, batches_.at(index * options_.accumulate + i));
      micro.run();
      out.loss += micro.scalar("loss");
      micro.release_outputs();
    }
    set_rates(*step_, out);
    step_->run();
    out.grad_norm = step_->scalar("grad_norm");
    step_->release_outputs();
  }

  static void set_batch(Executor& executor, const Batch& batch) {
    executor.set_input("tokens", batch.tokens);
    executor.set_input("targets", batch.targets);
  }

  void set_rates(Executor& executor, const TrainStep& step) const {
    executor.set_scalar("lr", step.lr);
    if (options_.optimizer.kind != OptimizerKind::kAdamw) return;
    const OptimizerOptions& o = options_.optimizer;
    // Skipped steps do not count: they left the moments as they were.
    const std::int64_t t = step.step - step.skipped_steps;
    executor.set_scalar("step_size", step_size(step.lr, o.beta1, o.beta2, t));
  }

  TrainOptions options_;
  Store store_;
  Batches batches_;
  std::optional<Batches> validation_;
  std::unique_ptr<Executor> step_, first_, next_, evaluator_;
};

void save_checkpoint(CheckpointWriter& writer, const Store& store, std::int64_t step,
                     const Json& meta) {
  const auto model = parameters_of(store);
  auto state = states_of(store, "adamw.");
  state.merge(states_of(store, kLossScale));
  writer.save(step, TensorMap(model.begin(), model.end()), TensorMap(state.begin(), state.end()),
              meta);
}

// Not the gradients of accumulation, which every step makes anew.
bool is_saved(std::string_view state) {
  return state.starts_with("adamw.") || state.starts_with(kLossScale);
}

// Restores weights and optimizer state; returns the steps already done.
std::int64_t restore(Store& store, const Checkpoint& checkpoint) {
  load_parameters(store, checkpoint.model);
  for (const std::string& name : store.names(LeafKind::kState)) {
    if (is_saved(name)) load_tensor(store, name, checkpoint.state.view(name));
  }
  return checkpoint.step;
}

void check_outputs(const TrainOptions& options) {
  for (const auto* path : {&options.save, &options.log}) {
    if (!path->empty()) check_writable(*path);
  }
}

void check_numbers(const TrainOptions& o) {
  if (o.steps < 0) fail_usage("--steps", "{} is negative", o.steps);
  if (o.accumulate < 1) fail_usage("--accumulate", "{} is not positive", o.accumulate);
  if (o.checkpoint_every < 0) {
    fail_usage("--checkpoint-every", "{} is negative", o.checkpoint_every);
  }
}

// Looks at every token, so that a bad one is known before the first step.
RunContent content_of(const Device& device, const TrainOptions& options, const TokenSource& tokens,
                      const TokenSource* validation) {
  const bool is_needed = !options.checkpoint.empty();  // hashes cost time
  Hash text;
  RunContent out{.device = device.name(), .tokens = tokens.size()};
  check_vocabulary(tokens, options.model.vocab, is_needed ? &text : nullptr);
  if (validation != nullptr) {
    check_vocabulary(*validation, options.model.vocab, is_needed ? &text : nullptr);
    out.validation_tokens = validation->size();
  }
  out.text = text.text();
  if (is_needed && !options.init.empty()) out.init = hash_text(MappedFile(options.init).bytes());
  return out;
}

// The checkpoint to go on from, if there is one; its damaged neighbours are warnings.
std::optional<Checkpoint> open_checkpoints(CheckpointWriter& writer, const TrainOptions& options) {
  if (!options.resume) {
    writer.start_anew(options.overwrite);
    return std::nullopt;
  }
  std::optional<Checkpoint> found = writer.load();
  if (!found) return std::nullopt;
  for (const std::string& warning : found->warnings) log_warn("[checkpoint] {}", warning);
  return found;
}

}  // namespace

TrainResult train(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
                  TokenSourcePtr validation, const StopSignal* stop,
                  const std::function<void(const TrainStep&)>& progress) {
  check_numbers(options);
  check_outputs(options);
  std::optional<CheckpointWriter> writer;
  std::optional<Checkpoint> resumed;
  if (!options.checkpoint.empty()) {
    writer.emplace(options.checkpoint);
    resumed = open_checkpoints(*writer, options);
  }
  Json meta = fingerprint(options, content_of(device, options, *tokens, validation.get()));
  if (resumed) meta = continue_run(resumed->meta, meta, options.change, resumed->step);
  Trainer trainer(device, options, tokens, validation);
  Store& store = trainer.store();
  initialize_states(store);
  TrainResult out;

  if (resumed) {
    out.resumed_from = restore(store, *resumed);
  } else if (!options.init.empty()) {
    load_parameters(store, SafetensorsFile(options.init));
  } else {
    initialize_parameters(store, options.seed);
  }

  LogFile log(options.log, out.resumed_from);
  std::int64_t saved_at = resumed ? resumed->step : -1;
  std::int64_t step = out.resumed_from;
  while (step < options.steps && (stop == nullptr || !stop->requested())) {
    TrainStep record = trainer.step(step++);
    if (trainer.can_validate() && options.validate_every > 0 &&
        step % options.validate_every == 0) {
      record.validation_loss = trainer.validate();
    }
    log.add(record);
    out.steps.push_back(record);
    if (progress) progress(record);
    if (writer && options.checkpoint_every > 0 && step % options.checkpoint_every == 0) {
      log.flush();
      save_checkpoint(*writer, store, step, meta);
      saved_at = step;
    }
  }
  log.flush();
  out.interrupted = step < options.steps;
  if (writer && saved_at != step) save_checkpoint(*writer, store, step, meta);
  if (!options.save.empty() && !out.interrupted)
    save_parameters(store, options.model, options.save);
  return out;
}

}  // namespace tracestep

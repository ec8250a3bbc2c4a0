#include "train/loop.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "base/log.h"
#include "base/output_file.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"
#include "train/checkpoint_files.h"
#include "train/diagnosis.h"
#include "train/fingerprint.h"
#include "train/log_file.h"
#include "train/model_store.h"
#include "train/trainer.h"
#include "train/whole_tensors.h"

namespace tracestep {
namespace {

// The checkpoints of one run, if it has any.
struct Checkpoints {
  std::optional<CheckpointWriter> writer = {};
  std::optional<Checkpoint> resumed = {};  // until its tensors are in the store
  std::filesystem::path folder;
  Json meta;
  std::int64_t saved_at = -1;  // the newest of this run; -1: none

  std::string last_finite() const {
    if (!writer) return "nothing is saved without option checkpoint";
    if (saved_at < 0) return fmt::format("there is no checkpoint in {} yet", folder.string());
    return fmt::format("the last finite checkpoint is step {} in {}", saved_at, folder.string());
  }
};

// Opens the folder and, on resume, loads the checkpoint to continue from, if there is one; damaged
// ones give warnings.
Checkpoints open_checkpoints(const TrainOptions& options, bool writes) {
  Checkpoints out{.folder = options.checkpoint, .meta = {}};
  if (options.checkpoint.empty()) return out;
  if (writes) out.writer.emplace(options.checkpoint);
  if (!options.resume) {
    if (writes) out.writer->start_anew(options.overwrite);
    return out;
  }
  out.resumed = writes ? out.writer->load() : load_checkpoint(options.checkpoint);
  if (!out.resumed) {
    log_info("[resume] there is no checkpoint in {} yet: training starts at step 1",
             options.checkpoint.string());
    return out;
  }
  for (const std::string& warning : out.resumed->warnings) log_warn("[checkpoint] {}", warning);
  return out;
}

// When a tensor is not finite, writes nothing and returns that tensor.
std::optional<NotFinite> save_checkpoint(Checkpoints& to, const WholeTensors& from,
                                         std::int64_t step) {
  const auto model = parameters_of(from);
  auto state = states_of(from, kAdamwStates);
  state.merge(states_of(from, kLossScale));
  const TensorMap weights(model.begin(), model.end()), states(state.begin(), state.end());
  for (const TensorMap* tensors : {&weights, &states}) {
    if (auto found = find_not_finite(*tensors)) return found;
  }
  if (to.writer) to.writer->save(step, weights, states, to.meta);
  to.saved_at = step;
  return std::nullopt;
}

// Whether checkpoints hold the state: not the gradients of accumulation, which every step computes.
bool is_saved(std::string_view state) {
  return state.starts_with(kAdamwStates) || state.starts_with(kLossScale);
}

// Refuses initial weights that are not finite: every step would fail because of them.
void check_finite(const SafetensorsFile& file) {
  if (const auto found = find_not_finite(file)) {
    throw Error(ErrorCode::kNotFinite, file.path().string(), found->str(),
                "train from other weights");
  }
}

// Restores weights and optimizer state; returns the steps already done.
std::int64_t restore(const WholeTensors& to, const Checkpoint& checkpoint) {
  check_finite(checkpoint.model);
  check_finite(checkpoint.state);
  load_parameters(to, checkpoint.model);
  for (const std::string& name : to.names(LeafKind::kState)) {
    // The checkpoint has no loss scale when its run's precision did not scale the loss: the scale
    // then has its initial value.
    const bool is_new = name.starts_with(kLossScale) && checkpoint.state.find(name) == nullptr;
    if (is_saved(name) && !is_new) load_tensor(to, name, checkpoint.state.read(name));
  }
  return checkpoint.step;
}

// Weights from the newest checkpoint, a file or the seed; returns the steps already done.
std::int64_t start(const WholeTensors& to, const TrainOptions& options, Checkpoints& checkpoints) {
  initialize_states(to);
  if (checkpoints.resumed) {
    checkpoints.saved_at = restore(to, *checkpoints.resumed);
    checkpoints.resumed.reset();
    return checkpoints.saved_at;
  }
  if (options.init.empty()) {
    initialize_parameters(to, options.run.seed);
  } else {
    const SafetensorsFile file(options.init);
    check_finite(file);
    load_parameters(to, file);
  }
  return 0;
}

void check_outputs(const TrainOptions& options) {
  for (const auto* path : {&options.save, &options.log}) {
    if (!path->empty()) check_writable(*path);
  }
  check_log(options.log);
}

void check_shards(const TrainOptions& o) {
  if (o.shards == 0) return;
  const Parallel& parallel = o.run.parallel;
  if (o.shards < 0 || o.shards % parallel.replicas() != 0 || o.run.shape.batch % o.shards != 0) {
    throw Error(ErrorCode::kUsage, "shards",
                fmt::format("{} shards of a batch of {} on {} replicas", o.shards,
                            o.run.shape.batch, parallel.replicas()),
                "give a number that the replicas divide, and that divides the batch");
  }
  if (o.accumulate > 1 || parallel.shards_optimizer()) {
    fail_usage("shards",
               "shards are accumulated, in one order, on ranks that have whole "
               "gradients; leave out accumulate and shard=1|2|3");
  }
  if (o.run.loss_chunks != 1) {
    fail_usage("shards", "a loss in chunks adds up in another order; leave out loss-chunks");
  }
  const bool is_narrow = is_low_precision(o.run.precision.parameters) || parallel.low_sums;
  if (parallel.replicas() > 1 && is_narrow) {
    fail_usage(
        "shards",
        "narrow sums are rounded once for each rank; leave out sums=low, and give weights in "
        "float32");
  }
}

void check_numbers(const TrainOptions& o) {
  if (o.steps < 0) fail_usage("steps", "{} is negative", o.steps);
  if (o.accumulate < 1) fail_usage("accumulate", "{} is not positive", o.accumulate);
  check_shards(o);
  if (o.checkpoint_every < 0) {
    fail_usage("checkpoint_every", "{} is negative", o.checkpoint_every);
  }
}

bool is_first_process(const Communicator* group) {
  return group == nullptr || group->processes() == nullptr || group->rank() == 0;
}

// The options of the processes after the first: only the first one writes the log.
TrainOptions without_outputs(TrainOptions options) {
  options.log.clear();
  return options;
}

// Checks that all processes start with the same weights and states; parts are not compared.
void check_same_start(const WholeTensors& tensors, Processes& processes) {
  Hash hash;
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : tensors.names(kind)) {
      if (!tensors.is_part(name)) hash.add(tensors.get(name).bytes);
    }
  }
  check_same(processes, "what training starts from", std::stoull(hash.text(), nullptr, 16));
}

// Looks at every token, so that a bad one is known before the first step.
RunContent content_of(const Device& device, const TrainOptions& options, const TokenSource& tokens,
                      const TokenSource* validation) {
  const bool is_needed = !options.checkpoint.empty();  // hashes cost time
  Hash text;
  RunContent out{.device = device.name(), .tokens = tokens.size()};
  check_vocabulary(tokens, options.run.model.vocab, is_needed ? &text : nullptr);
  if (validation != nullptr) {
    check_vocabulary(*validation, options.run.model.vocab, is_needed ? &text : nullptr);
    out.validation_tokens = validation->size();
  }
  out.text = text.text();
  if (is_needed && !options.init.empty()) out.init = hash_file(InputFile(options.init, "init"));
  return out;
}

// The folder first, so that one in use is refused before a long scan of the tokens.
Checkpoints open_run(const Device& device, const TrainOptions& options, const TokenSource& tokens,
                     const TokenSource* validation) {
  Checkpoints out = open_checkpoints(options, is_first_process(device.group()));
  out.meta = fingerprint(options, content_of(device, options, tokens, validation));
  if (out.resumed) {
    out.meta = continue_run(out.resumed->meta, out.meta, options.change, out.resumed->step);
  }
  return out;
}

class Run {
 public:
  Run(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
      TokenSourcePtr validation)
      : options_(is_first_process(devices.group()) ? options : without_outputs(options)),
        group_(devices.group()),
        checkpoints_(open_run(devices.first(), options_, *tokens, validation.get())),
        trainer_(devices, options_, tokens, validation) {
    out_.resumed_from = step_ = start(trainer_.tensors(), options_, checkpoints_);
    if (group_ != nullptr && group_->processes() != nullptr) {
      check_same_start(trainer_.tensors(), *group_->processes());
    }
    if (step_ > options.steps) {
      log_warn("[resume] {} steps are done already, more than the {} of this run", step_,
               options.steps);
    }
    log_.emplace(options_.log, step_);
  }

  TrainResult go(const StopSignal* stop, const std::function<void(const TrainStep&)>& progress) {
    try {
      while (step_ < options_.steps && !is_stopped(stop)) {
        one_step(progress);
        if (is_due(options_.checkpoint_every)) save_or_end();
      }
    } catch (const Error& error) {
      keep_what_is_done(error);
      throw;
    }
    out_.interrupted = step_ < options_.steps;
    if (checkpoints_.saved_at != step_ && may_save()) save_or_end();
    if (!out_.interrupted) save_weights();
    return out_;
  }

 private:
  // All processes take part where they hold parts; the first one writes.
  void save_weights() {
    if (options_.save.empty()) return;
    const auto weights = parameters_of(trainer_.tensors());
    if (!is_first_process(group_)) return;
    if (const auto bad = save_parameters(weights, options_.run.model, options_.save)) end(bad);
  }

  bool is_stopped(const StopSignal* stop) const {
    return stop != nullptr && agree(group_, stop->requested());
  }
  bool is_due(std::int64_t every) const { return every > 0 && step_ % every == 0; }

  void one_step(const std::function<void(const TrainStep&)>& progress) {
    TrainStep record = trainer_.step(step_);
    if (!record.not_finite) {
      ++step_;
      if (trainer_.can_validate() && is_due(options_.validate_every)) {
        record.validation_loss = trainer_.validate();
      }
    }
    log_->add(record);
    out_.add(record);
    if (progress) progress(record);
    if (record.not_finite) end_at_this_step();
    if (!std::isfinite(record.validation_loss.value_or(0.0))) {
      end(trainer_.find_cause_in_validation());
    }
  }

  bool is_alone() const { return group_ == nullptr || group_->processes() == nullptr; }
  // Where one process of several holds everything, the first one alone does.
  bool saves_checkpoints() const {
    if (options_.checkpoint.empty()) return false;
    return checkpoints_.writer || trainer_.tensors().has_parts();
  }

  // With --overwrite the first checkpoint removes those of the earlier run, so an untrained one is
  // not saved.
  bool may_save() const { return !options_.overwrite || step_ > 0; }

  // Saves the state before this step, unless that would replace an earlier run by one that failed
  // before its first checkpoint. The search for the cause comes last, as it computes the step
  // again.
  [[noreturn]] void end_at_this_step() {
    const bool replaces = options_.overwrite && checkpoints_.saved_at < 0;
    if (!replaces) save_steps_done();
    end(trainer_.find_cause(step_));
  }

  void save_steps_done() {
    if (saves_checkpoints() && step_ > std::max(checkpoints_.saved_at, out_.resumed_from)) {
      save_checkpoint(checkpoints_, trainer_.tensors(), step_);
    }
  }

  // Called when a text cannot be read or a log cannot be written: the weights are then those
  // between two steps, and can be saved.
  void keep_what_is_done(const Error& error) {
    if (error.code() != ErrorCode::kInput && error.code() != ErrorCode::kOutput) return;
    if (!is_alone() && trainer_.tensors().has_parts()) return;  // the others do not come here
    try {
      save_steps_done();
    } catch (const Error&) {  // probably the same cause: the first error is reported
    }
    if (checkpoints_.saved_at == step_ && step_ > out_.resumed_from) {
      log_warn("[checkpoint] the steps up to the error are saved: step {} in {}", step_,
               options_.checkpoint.string());
    }
  }

  void save_or_end() {
    if (!saves_checkpoints()) return;
    if (const auto bad = save_checkpoint(checkpoints_, trainer_.tensors(), step_)) end(bad);
  }

  [[noreturn]] void end(const std::optional<NotFinite>& cause) {
    throw not_finite_error(options_, out_.last, trainer_.store(), cause,
                           checkpoints_.last_finite());
  }

  TrainOptions options_;
  Communicator* const group_;  // nullptr: there is one rank
  Checkpoints checkpoints_;
  Trainer trainer_;
  TrainResult out_;
  std::optional<LogFile> log_;
  std::int64_t step_ = 0;  // steps done
};

}  // namespace

void TrainResult::add(const TrainStep& step) {
  if (steps == 0) first = step;
  last = step;
  if (step.validation_loss) validation_loss = step.validation_loss;
  if (recent_rates.size() < kRecentSteps) {
    recent_rates.push_back(step.tokens_per_s);
  } else {
    recent_rates[static_cast<std::size_t>(steps) % kRecentSteps] = step.tokens_per_s;
  }
  ++steps;
}

TrainResult train(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
                  TokenSourcePtr validation, const StopSignal* stop,
                  const std::function<void(const TrainStep&)>& progress) {
  check_numbers(options);
  const bool is_gpu = devices.first().traits().kind == DeviceKind::kCuda;
  if (options.shards > 0 && options.run.parallel.replicas() > 1 && is_gpu) {
    fail_usage("shards", "between GPUs sums have NCCL's order; ranks on CPUs keep one order");
  }
  if (is_first_process(devices.group())) check_outputs(options);
  return Run(devices, options, tokens, validation).go(stop, progress);
}

TrainResult train(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
                  TokenSourcePtr validation, const StopSignal* stop,
                  const std::function<void(const TrainStep&)>& progress) {
  return train(RankDevices(device), options, std::move(tokens), std::move(validation), stop,
               progress);
}

}  // namespace tracestep

#include "train/loop.h"
#include "train/generate.h"
#include "train/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "base/log.h"
#include "base/output_file.h"
#include "nn/captured_programs.h"
#include "runtime/communicator.h"
#include "runtime/processes.h"
#include "runtime/wishes.h"
#include "tokens/tokenizer.h"
#include "train/diagnosis.h"
#include "train/fingerprint.h"
#include "train/log_file.h"
#include "train/run_checkpoints.h"
#include "train/small_updates.h"
#include "train/trainer.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"
#include "weights/weights.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

// Sets weights from the newest checkpoint, `init` or the seed; returns the steps already done.
std::int64_t start(const WholeTensors& to, const RunSpec& run,
                   const std::optional<InitialWeights>& init, RunCheckpoints& checkpoints) {
  initialize_states(to);
  load_captured_constants(to, run);
  if (checkpoints.resumed() != nullptr) return checkpoints.restore(to);
  if (init) check_finite(init->tensors);
  if (run.model.captured != nullptr) {
    start_captured(to, run, init ? &init->tensors : nullptr);
  } else if (init) {
    load_weights(to, run, init->tensors);
  } else {
    initialize_parameters(to, run.seed);
    start_adapters(to, run);
  }
  return 0;
}

void check_save(const TrainOptions& options) {
  if (options.save.empty()) return;
  check_writable(options.save, "save"_field);
  if (is_stream(options.save)) return;
  const std::filesystem::path tokenizer = tokenizer_beside(options.save);
  if (options.tokenizer) {
    // A file that holds this tokenizer may stay: a published one lacks the mark that
    // check_writable() asks for.
    if (!options.tokenizer->is_saved_at(tokenizer)) check_writable(tokenizer, "save"_field);
    return;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(tokenizer, ignored)) return;
  throw Error(ErrorCode::kUsage, "save"_field,
              fmt::format("{} is the tokenizer of other weights", tokenizer.string()),
              "give another name, or remove it: no tokenizer is known for these tokens");
}

void check_outputs(const TrainOptions& options) {
  check_save(options);
  if (!options.log.empty()) check_writable(options.log, "log"_field);
}

void check_shards(const TrainOptions& o) {
  if (o.shards == 0) return;
  const Parallel& parallel = o.run.parallel;
  if (o.shards < 0 || o.shards % parallel.replicas() != 0 || o.run.shape.batch % o.shards != 0) {
    throw Error(ErrorCode::kUsage, "shards"_field,
                fmt::format("{} shards of a batch of {} on {} replicas", o.shards,
                            o.run.shape.batch, parallel.replicas()),
                "give a number that the replicas divide, and that divides the batch");
  }
  if (o.run.accumulate > 1 || parallel.shards_optimizer()) {
    fail_usage("shards"_field,
               "shards are accumulated, in one order, on ranks that have whole "
               "gradients; leave out accumulate and shard=1|2|3");
  }
  if (o.run.loss_chunks != 1) {
    fail_usage("shards"_field, "a loss in chunks adds up in another order; leave out loss-chunks");
  }
  if (o.run.ffn_chunks != 1) {
    fail_usage("shards"_field,
               "feed-forwards in chunks add up in another order; leave out ffn-chunks");
  }
  const bool is_narrow = is_low_precision(o.run.precision.parameters) || parallel.low_sums;
  if (parallel.replicas() > 1 && is_narrow) {
    fail_usage(
        "shards"_field,
        "narrow sums are rounded once for each rank; leave out sums=low, and give weights in "
        "float32");
  }
}

// Returns `tokens`, but at most the number of learned positions of the model.
std::int64_t longest_text(const ModelConfig& model, std::int64_t tokens) {
  return model.positions == Positions::kLearned ? std::min(tokens, model.max_positions) : tokens;
}

void warn_of_late_updates(const TrainOptions& o) {
  if (o.run.updates != UpdateTime::kEarly || waits_for(o).empty()) return;
  log_warn("train: no update is early: {} needs the gradients of all weights first", waits_for(o));
}

void check_rounding(const TrainOptions& o) {
  if (o.rounding == Rounding::kNearest || o.run.precision.parameters == DType::kBF16) return;
  throw Error(ErrorCode::kUsage, "rounding"_field,
              fmt::format("{}, but the weights are {}", name_of(o.rounding),
                          name_of(o.run.precision.parameters)),
              "leave it out, or give " TRACESTEP_OPTION(
                  precision) " bf16-pure, whose weights are in bfloat16");
}

void check_numbers(const TrainOptions& o) {
  check_rounding(o);
  warn_of_late_updates(o);
  if (o.steps < 0) fail_usage("steps"_field, "{} is negative", o.steps);
  if (o.run.accumulate < 1) fail_usage("accumulate"_field, "{} is not positive", o.run.accumulate);
  check_shards(o);
  if (o.sample_every > 0) refuse_captured(o.run.model, "no samples can be made of it");
  if (o.sample_every < 0) fail_usage("sample_every"_field, "{} is negative", o.sample_every);
  const std::int64_t prompt = std::ssize(o.sample_prompt);
  const ModelConfig& model = o.run.model;
  if (o.sample_every > 0 && prompt > longest_text(model, prompt)) {
    fail_usage("sample_prompt"_field,
               "its {} tokens are more than the {} positions that the model has", prompt,
               model.max_positions);
  }
  if (o.checkpoint_every < 0) {
    fail_usage("checkpoint_every"_field, "{} is negative", o.checkpoint_every);
  }
}

bool is_first_process(const Communicator* group) {
  return group == nullptr || group->processes() == nullptr || group->rank() == 0;
}

// The options for processes after the first, without a log, as only the first writes it.
TrainOptions without_outputs(TrainOptions options) {
  options.log.clear();
  return options;
}

// Throws unless all processes start with the same weights and states; parts are not compared.
void check_same_start(const WholeTensors& tensors, Processes& processes) {
  Hash hash;
  for (const LeafKind kind : {LeafKind::kParameter, LeafKind::kConstant, LeafKind::kState}) {
    for (const std::string& name : tensors.names(kind)) {
      if (!tensors.is_part(name)) hash.add(tensors.get(name).bytes);
    }
  }
  check_same(processes, "what training starts from", std::stoull(hash.text(), nullptr, 16));
}

// Describes what the run reads; looks at every token, so that a bad one is known at once.
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
  return out;
}

Processes* processes_of(const Communicator* group) {
  return group == nullptr ? nullptr : group->processes();
}

// Opens the folder first, so that one in use is refused before a long scan of the tokens. Opens the
// weights of option init into `init`, but not for a run that is resumed: they may no longer be
// there, and a folder may have a newer checkpoint.
RunCheckpoints open_checkpoints(const Device& device, const TrainOptions& options,
                                const TokenSource& tokens, const TokenSource* validation,
                                std::optional<InitialWeights>& init, std::string& origin) {
  Processes* const processes = processes_of(device.group());
  RunCheckpoints out(options, processes);
  if (out.resumed() == nullptr && !options.init.empty()) {
    init.emplace(open_initial_weights(options.init, out.are_on(), processes));
  }
  RunContent content = content_of(device, options, tokens, validation);
  if (init) content.init = init->hash;
  const Checkpoint* const from = out.resumed();
  origin = from != nullptr ? from->model.origin() : init ? init->tensors.origin() : "";
  Json meta = fingerprint(options, content);
  if (from != nullptr) {
    if (!options.init.empty()) {
      log_info("[resume] weights come from {}, not from option init", from->folder.string());
    }
    if (const Json* began_with = from->meta.find("init")) meta["init"] = *began_with;
    meta = continue_run(from->meta, meta, options.change, from->step);
  }
  if (!options.arguments.is_null()) meta["arguments"] = options.arguments;
  if (!origin.empty()) meta[kOrigin] = origin;
  out.describe({std::move(meta), options.tokenizer ? options.tokenizer->content() : ""});
  return out;
}

class Run {
 public:
  Run(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
      TokenSourcePtr validation)
      : options_(is_first_process(devices.group()) ? options : without_outputs(options)),
        device_(devices.first()),
        group_(devices.group()),
        checkpoints_(
            open_checkpoints(devices.first(), options_, *tokens, validation.get(), init_, origin_)),
        trainer_(devices, options_, tokens, validation) {
    out_.best = checkpoints_.best();
    out_.resumed_from = step_ = start(trainer_.tensors(), options_.run, init_, checkpoints_);
    init_.reset();
    if (!is_alone()) check_same_start(trainer_.tensors(), *group_->processes());
    if (step_ > options.steps) {
      log_warn("[resume] {} steps are done already, more than the {} of this run", step_,
               options.steps);
    }
    log_.emplace(options_.log, step_);
    if (is_first_process(group_)) warn_of_small_updates(trainer_.store(), options_);
  }

  TrainResult go(const StopSignal* stop, const std::function<void(const TrainStep&)>& progress) {
    begin_ns_ = now_ns();
    try {
      while (goes_on()) {
        const Wishes wishes = wishes_of(group_, stop);
        if (wishes.save) save_as_asked(*stop);
        if (wishes.stop) break;
        const bool is_best = one_step(progress);
        if (is_best || is_due(options_.checkpoint_every)) save_or_end();
      }
    } catch (const Error& error) {
      keep_what_is_done(error);
      throw;
    }
    out_.interrupted = goes_on();
    if (checkpoints_.saved_at() != step_ && may_save()) save_or_end();
    if (!out_.interrupted) save_weights();
    return out_;
  }

 private:
  void save_weights() {
    if (options_.save.empty()) return;
    const Tokenizer* tokenizer = options_.tokenizer.get();
    if (const auto& module = options_.run.model.captured) {
      if (const auto bad = save_captured(trainer_.tensors(), *module, options_.save)) end(bad);
    } else if (const auto bad = save_parameters(trainer_.tensors(), options_.run.model, tokenizer,
                                                options_.save, origin_, options_.run.lora)) {
      end(bad);
    }
    if (tokenizer == nullptr || is_stream(options_.save) || !is_first_process(group_)) return;
    tokenizer->save(tokenizer_beside(options_.save));
    log_info("train: the tokenizer is in {}", tokenizer_beside(options_.save).string());
  }

  bool is_due(std::int64_t every) const { return every > 0 && step_ % every == 0; }
  bool has_no_time() const {
    return options_.seconds > 0 &&
           static_cast<double>(now_ns() - begin_ns_) * 1e-9 >= options_.seconds;
  }
  bool goes_on() const { return step_ < options_.steps && !is_over_; }

  // Trains, validates and logs one step. True if its validation loss is the lowest so far.
  bool one_step(const std::function<void(const TrainStep&)>& progress) {
    TrainStep record = trainer_.step(step_);
    bool is_best = false;
    if (!record.not_finite) {
      ++step_;
      is_over_ = has_no_time();
      const bool is_last = is_over_ && options_.validate_every > 0;
      if (trainer_.can_validate() && (is_last || is_due(options_.validate_every))) {
        record.validation_loss = trainer_.validate();
        is_best = checkpoints_.add_validation({step_, *record.validation_loss});
        out_.best = checkpoints_.best();
      }
      if (is_due(options_.sample_every)) record.sample = sample();
    }
    log_->add(record);
    out_.add(record);
    if (progress) progress(record);
    if (record.not_finite) end_at_this_step();
    if (!std::isfinite(record.validation_loss.value_or(0.0))) {
      end(trainer_.find_cause_in_validation());
    }
    return is_best;
  }

  // Samples from a copy of the weights, which changes no number of the training. Without room for
  // it, a single process goes on without samples; one of several fails, as others may have room.
  std::vector<std::int64_t> sample() try {
    GenerateOptions options{.run = options_.run, .prompt = options_.sample_prompt, .tokens = 64};
    options.run.parallel = {};
    const std::int64_t whole = std::ssize(options.prompt) + options.tokens;
    options.run.shape = {.batch = 1, .context = longest_text(options.run.model, whole)};
    const WholeTensors tensors = trainer_.tensors();
    return generate(device_, options, nullptr, {}, [&](Store& to) {
      for (const std::string& name : tensors.weights()) {
        load_tensor(to, name, tensors.get(name));
      }
    });
  } catch (const OutOfMemory& error) {
    if (!is_alone()) throw;
    log_warn("[sample] there is no room for a copy of the weights: {}", error.text());
    options_.sample_every = 0;
    return {};
  }

  bool is_alone() const { return processes_of(group_) == nullptr; }

  // True if the state may be saved. With --overwrite an untrained one may not, as the first
  // checkpoint removes those of the earlier run.
  bool may_save() const { return !options_.overwrite || step_ > 0; }

  // Saves the state before this step, unless that would replace an earlier run by one that failed
  // before its first checkpoint. The search for the cause comes last, as it computes the step
  // again.
  [[noreturn]] void end_at_this_step() {
    const bool replaces = options_.overwrite && checkpoints_.saved_at() < 0;
    const bool was_applied =
        options_.run.updates == UpdateTime::kEarly && waits_for(options_).empty();
    if (!replaces && !was_applied && has_unsaved_steps())
      checkpoints_.save(step_, trainer_.tensors());
    end(trainer_.find_cause(step_));
  }

  bool has_unsaved_steps() const {
    return checkpoints_.are_on() && step_ > std::max(checkpoints_.saved_at(), out_.resumed_from);
  }

  // Saves the trained steps after an error in reading a text or in writing a log: the weights are
  // then those between two steps. Other processes do not call this.
  void keep_what_is_done(const Error& error) {
    if (error.code() != ErrorCode::kInput && error.code() != ErrorCode::kOutput) return;
    const WholeTensors tensors = trainer_.tensors();
    if (!is_alone() && (!is_first_process(group_) || tensors.has_parts())) return;
    try {
      if (has_unsaved_steps()) {
        is_alone() ? checkpoints_.save(step_, tensors) : checkpoints_.save_alone(step_, tensors);
      }
    } catch (const Error&) {  // probably the same cause: the first error is reported
    }
    if (checkpoints_.saved_at() == step_ && step_ > out_.resumed_from) {
      log_warn("[checkpoint] the steps up to the error are saved: step {} in {}", step_,
               options_.checkpoint.string());
    }
  }

  void save_or_end() {
    if (!checkpoints_.are_on()) return;
    if (const auto bad = checkpoints_.save(step_, trainer_.tensors())) end(bad);
  }

  // Saves this step unless it is saved, and answers all requests that came before.
  void save_as_asked(const StopSignal& stop) {
    if (checkpoints_.are_on() && may_save()) {
      if (checkpoints_.saved_at() != step_) save_or_end();
      log_info("[checkpoint] step {} is in {}", step_, options_.checkpoint.string());
    }
    stop.saved();
  }

  [[noreturn]] void end(const std::optional<NotFinite>& cause) {
    throw not_finite_error(options_, out_.last, trainer_.store(), cause,
                           checkpoints_.last_finite());
  }

  TrainOptions options_;
  Device& device_;                      // the first rank's
  Communicator* const group_;           // nullptr: there is one rank
  std::optional<InitialWeights> init_;  // until they are loaded
  std::string origin_;                  // the published model that they began from; empty: none
  RunCheckpoints checkpoints_;
  Trainer trainer_;
  TrainResult out_;
  std::optional<LogFile> log_;
  std::int64_t step_ = 0;  // steps done
  std::int64_t begin_ns_ = 0;
  bool is_over_ = false;  // the time of the run, when the last step ended
};

}  // namespace

void TrainResult::add(const TrainStep& step) {
  if (steps == 0) first = step;
  last = step;
  if (step.validation_loss) validation_loss = step.validation_loss;
  if (steps == 1) recent_rates.clear();
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
  const bool has_own_links = devices.first().traits().has_own_links();
  if (options.shards > 0 && options.run.parallel.replicas() > 1 && has_own_links) {
    fail_usage("shards"_field, "between GPUs sums have NCCL's order; ranks on CPUs keep one order");
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

// tracestep train: trains on text or tokens, with a log, checkpoints and an exact resume.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "captured/captured_model.h"
#include "cli/chosen_forms.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "cli/split_hint.h"
#include "cli/text_stream.h"
#include "cli/token_input.h"
#include "cli/training_notices.h"
#include "cli/training_view.h"
#include "course/tables.h"
#include "lab/measure/statistics.h"
#include "lab/report/known_columns.h"
#include "runtime/processes.h"
#include "spec/check_run.h"
#include "spec/step_program.h"
#include "tokens/text_source.h"
#include "train/fingerprint.h"
#include "train/loop.h"
#include "train/train_fields.h"
#include "weights/model_for.h"
#include "weights/model_notes.h"

namespace tracestep::cli {
namespace {

constexpr double kDefaultValidationFraction = 0.05;

struct TrainCommand {
  TrainOptions train;
  TokenOptions tokens;
  RunGrid grid{{.model = preset("tiny"), .shape = {.batch = 4, .context = 128}}};
  OutputOptions output;
  std::optional<double> validation_fraction;
  std::optional<std::int64_t> log_every;
  std::string sample_prompt;  // empty: a newline
  std::string recipe;
  std::string read;  // the source of the tokens, in words
  GivenOptions given = {};
};

void add_file_options(OptionSet& set, TrainCommand& o) {
  set.group("Files");
  add_init_option(set, o.train.init);
  set.path("--save", "FILE", o.train.save, "weights at the end; the tokenizer goes beside it");
  set.path("--log", "FILE", o.train.log, "one JSON line per step");
  set.path("--checkpoint", "DIR", o.train.checkpoint, "folder of checkpoints");
  set.integer("--checkpoint-every", o.train.checkpoint_every, {1},
              "steps between checkpoints; without it only at the end, when interrupted and at the "
              "best validation");
  set.toggle(
      "--resume", o.train.resume,
      "continue from the newest checkpoint, if there is one, with its options where none are "
      "given");
  set.value("--change", "NAME[,NAME]",
            "with --resume, options that may differ from the checkpoint's, such as lr,schedule",
            [&o](const std::string& where, const std::string& text) {
              o.train.change = split_list(where, text);
            });
  add_overwrite_flag(
      set,
      "replace files that tracestep did not write, and start anew in a folder that has "
      "checkpoints: they are removed once the first new one is written",
      &o.train.overwrite);
  set.group("Progress");
  set.integer("--log-every", o.log_every, {1},
              "steps between lines on stderr; when left out about twenty lines in all, or one a "
              "minute");
  set.integer("--sample-every", o.train.sample_every, {0},
              "steps between samples of text, of 64 tokens each; 0 is none");
  set.text("--sample-prompt", "TEXT", o.sample_prompt,
           "what samples continue; a newline when left out");
  set.group("Validation");
  set.integer("--validate-every", o.train.validate_every, {0},
              "steps between validations; 0 is none. With --checkpoint the step with the lowest "
              "loss is kept, as DIR/best");
  set.value(
      "--validation-fraction", "X", "share of the tokens to validate on, taken from their end",
      [&o](const std::string& where, const std::string& text) {
        o.validation_fraction = parse_real(where, text, 0.0, 1.0);
      },
      fmt::format("{}", kDefaultValidationFraction));
  set.integer("--validation-batches", o.train.validation_batches, {1},
              "batches that a validation reads, from the beginning of these tokens; when left out "
              "every token once, as eval does");
}

void check_together(const TrainCommand& o) {
  const TrainOptions& t = o.train;
  check_changes(t.change);
  if (t.checkpoint.empty() && t.resume) fail_usage("--resume", "it needs --checkpoint DIR");
  if (!t.resume && !t.change.empty()) fail_usage("--change", "it needs --resume");
  if (t.resume && t.overwrite) {
    fail_usage("--overwrite", "it starts anew, --resume continues; give one of them");
  }
  if (t.checkpoint.empty() && t.checkpoint_every > 0) {
    fail_usage("--checkpoint-every", "it needs --checkpoint DIR");
  }
  if (t.sample_every == 0 && o.given.contains("--sample-prompt") && !t.resume) {
    fail_usage("--sample-prompt", "it needs --sample-every N");
  }
  // A resumed run may leave out the validation of which its checkpoint has the options.
  if (t.validate_every == 0 && o.given.contains("--validation-batches") && !t.resume) {
    fail_usage("--validation-batches", "it needs --validate-every N");
  }
  if (t.validate_every == 0 && o.validation_fraction && !t.resume) {
    fail_usage("--validation-fraction", "it needs --validate-every N");
  }
  if (o.validation_fraction && *o.validation_fraction <= 0.0) {
    fail_usage("--validation-fraction", "0 sets no token aside; leave out --validate-every");
  }
  if (t.validate_every > 0 && o.validation_fraction.value_or(0.0) >= 1.0) {
    fail_usage("--validation-fraction", "1 leaves nothing to train on");
  }
}

// The flags and values of a recipe, each of which holds unless the user gives the flag.
std::vector<std::pair<std::string, std::string>> recipe_of(const TrainOptions& o) {
  constexpr std::int64_t kMostWarmup = 2000;
  return {{"--schedule", "cosine"},
          {"--lr-min", fmt::format("{:g}", o.schedule.lr / 10)},
          {"--warmup-steps", std::to_string(std::min(o.steps / 20, kMostWarmup))},
          {"--clip", "1"},
          {"--weight-decay", "0.1"},
          {"--weight-decay-on", "matrices"}};
}

// Reads the recipe's flags as if they had been given, so that checkpoints keep what they set.
void take_recipe(const TrainCommand& o, const OptionSet& set) {
  if (o.recipe.empty()) return;
  std::vector<std::string> taken;
  for (const auto& [flag, value] : recipe_of(o.train)) {
    if (o.given.contains(flag)) continue;
    // Beside a constant schedule that was given there is no cosine that could end.
    if (flag == "--lr-min" && o.train.schedule.kind != ScheduleKind::kCosine) continue;
    std::ranges::find(set.options(), flag, &Option::flag)->read(flag, value);
    taken.insert(taken.end(), {flag, value});
  }
  if (!taken.empty()) log_info("recipe {}: {}", o.recipe, shell_quoted(taken));
}

// Reads the optimizer's settings of a captured module as if they had been given. Of rates and
// decays it takes the highest: groups have shares of it (passes/pipeline.cpp).
void take_optimizer(const TrainCommand& o, const OptionSet& set) {
  const auto module = o.grid.combinations().front().model.captured;
  if (module == nullptr || module->groups.empty()) return;
  const auto highest = [&](double OptimizerGroup::*member) {
    return std::ranges::max(module->groups, {}, member).*member;
  };
  std::vector<std::pair<std::string, std::optional<double>>> said{
      {"--lr", highest(&OptimizerGroup::lr)},
      {"--weight-decay", highest(&OptimizerGroup::weight_decay)}};
  const OptimizerGroup& first = module->groups.front();
  for (const auto& [flag, member] :
       {std::pair("--beta1", &OptimizerGroup::beta1), std::pair("--beta2", &OptimizerGroup::beta2),
        std::pair("--eps", &OptimizerGroup::eps)}) {
    said.emplace_back(flag, first.*member);
    const auto is_other = [&](const OptimizerGroup& g) { return g.*member != first.*member; };
    if (std::ranges::none_of(module->groups, is_other)) continue;
    throw Error(
        ErrorCode::kUsage, flag,
        fmt::format("groups of {}'s optimizer differ in it, and a step has one", module->name),
        "give all groups the same one");
  }
  std::vector<std::string> taken;
  for (const auto& [flag, value] : said) {
    if (!value || o.given.contains(flag)) continue;
    std::ranges::find(set.options(), flag, &Option::flag)->read(flag, fmt::format("{}", *value));
    taken.insert(taken.end(), {flag, fmt::format("{:g}", *value)});
  }
  log_info("optimizer of {}: {}; groups: {}; {}", module->name, module->optimizer,
           module->groups.size(), shell_quoted(taken));
  const bool is_muon = o.grid.combinations().front().optimizer.kind == OptimizerKind::kMuon;
  const std::string_view ours = is_muon ? "Muon" : "AdamW";
  if (!module->optimizer.empty() && module->optimizer != ours) {
    log_warn("[{}] it was captured with {}; the steps here are {}'s", module->name,
             module->optimizer, ours);
  }
}

// Refuses flags of the training that have no effect in this run. A resumed run is not checked: its
// flags are those of its checkpoint, and another optimizer is refused when they are compared.
void check_effects(const TrainCommand& o, const RunSpec& run) {
  if (o.train.resume) return;
  TrainOptions options = o.train;
  options.run.optimizer.kind = run.optimizer.kind;
  for (const TrainField& field : train_fields()) {
    const std::string flag = "--" + with_dashes(field.name);
    if (field.no_effect == nullptr || !o.given.contains(flag) || field.applies(options)) continue;
    throw Error(ErrorCode::kUsage, flag, field.no_effect,
                fmt::format("leave it out, or give {}", field.needs));
  }
}

Table summary(const TrainCommand& o, const TrainResult& result, std::int64_t parameters,
              double seconds) {
  Table table{.name = "train",
              .title = "Training",
              .columns = {col::status, col::parameters, col::steps,
                          int_column("resumed_from", "resumed from"),
                          real_column("first_loss", "first loss", {}, 4),
                          col::loss.titled("last loss"), col::validation_loss,
                          real_column("best_validation_loss", "best", {}, 4,
                                      "the lowest validation loss, those before a resume included"),
                          col::tokens_per_s(fmt::format("median over the last {} steps at most",
                                                        TrainResult::kRecentSteps)),
                          col::seconds}};
  const bool none = result.steps == 0;
  table.add_row({result.interrupted ? "interrupted" : "done", parameters,
                 result.resumed_from + result.steps, result.resumed_from,
                 none ? Json() : Json(result.first.loss), none ? Json() : Json(result.last.loss),
                 result.validation_loss ? Json(*result.validation_loss) : Json(),
                 result.best ? Json(result.best->loss) : Json(),
                 none ? Json() : Json(median_of(result.recent_rates)), seconds});
  if (!o.train.save.empty() && !result.interrupted) {
    table.notes.push_back("weights: " + o.train.save.string());
  }
  if (!o.train.log.empty()) table.notes.push_back("a line per step: " + o.train.log.string());
  if (!o.train.checkpoint.empty()) {
    table.notes.push_back("checkpoints: " + o.train.checkpoint.string());
    if (result.best) {
      table.notes.push_back(fmt::format("the best, step {}: {}", result.best->step,
                                        (o.train.checkpoint / "best").string()));
    }
  }
  return table;
}

// The dense peak of all ranks' devices by the data sheet, in FLOP/s; 0: it is not known.
double peak_flops(const RunSpec& run, const Json& environment) {
  const Json* const gpu = environment.find("gpu");
  if (gpu == nullptr || !gpu->is_string()) return 0.0;
  const PublishedDevice* const device = known_device(gpu->as_string());
  if (device == nullptr) return 0.0;
  return 1e12 * device->product_tflops(run.precision) * run.parallel.ranks;
}

TrainingView::Setup view_of(const TrainCommand& o, const Json& environment) {
  const RunSpec& run = o.train.run;
  RunSpec step = run;
  step.mode = Mode::kStep;
  return {.steps = o.train.steps,
          .log_every = o.log_every,
          .flops_per_token = needed_flops(step) / static_cast<double>(tokens_of_step(step)),
          .peak_flops = peak_flops(run, environment),
          .prompt = o.train.sample_prompt,
          .tokenizer = o.train.tokenizer.get()};
}

void set_sample_prompt(TrainCommand& o) {
  if (o.train.sample_every == 0) return;
  if (!o.train.tokenizer) {
    throw Error(ErrorCode::kUsage, "--sample-every", "no tokenizer is known for these tokens",
                "give --text, or --init with weights that have one");
  }
  const std::string text = o.sample_prompt.empty() ? "\n" : o.sample_prompt;
  o.train.sample_prompt = prompt_tokens(*o.train.tokenizer, text);
  if (text_of_prompt(o.train.tokenizer.get(), o.train.sample_prompt).empty()) {
    fail_usage("--sample-prompt", "the text is empty");
  }
}

// Checks that no output is an input; --save may be --init, to train a model further in place.
void check_files(const TrainCommand& o) {
  const std::vector<NamedPath> inputs = o.tokens.inputs();
  std::vector<NamedPath> outputs{
      {"--save", o.train.save}, {"--log", o.train.log}, {"--output", o.output.path}};
  if (!o.train.save.empty() && !is_stream(o.train.save)) {
    outputs.push_back({"--save's tokenizer", tokenizer_beside(o.train.save)});
  }
  check_apart(inputs, outputs);
  check_apart(std::vector<NamedPath>{{"--init", o.train.init}},
              std::vector<NamedPath>{{"--log", o.train.log}, {"--output", o.output.path}});
}

// The run that the flags describe; its model may still depend on the tokens.
RunSpec run_of_flags(const TrainCommand& o, DeviceUse use) {
  return placed(o.grid.combinations().front(), Takes::kOracle, use, Ranks::kUsedByLaterModel);
}

std::optional<Checkpoint> find_checkpoint(TrainCommand& o, const OptionSet& set) {
  if (!o.train.resume || o.train.checkpoint.empty()) return std::nullopt;
  auto found = load_checkpoint(o.train.checkpoint, Verify::kDescription);
  if (processes() != nullptr) {
    check_same(*processes(), "the checkpoint whose options it takes",
               found ? std::stoull(found->checksum, nullptr, 16) : 0);
  }
  if (!found) return found;
  take_kept_options(set, o.given, *found);
  if (!o.given.contains("--validation-batches")) {
    o.train.validation_batches = validation_batches_of(found->meta);
  }
  return found;
}

// The checkpoint that --resume continues; nullopt: there is none. Its tensors are checked when they
// are loaded. Options that `o` was not given come from that checkpoint, else from the recipe, else
// from the optimizer of a captured module.
std::optional<Checkpoint> complete(TrainCommand& o, const OptionSet& set) {
  auto found = find_checkpoint(o, set);
  if (!found) take_optimizer(o, set);
  take_recipe(o, set);
  if (!found) {
    take_weights_of_model(o.grid.combinations().front().model, o.train.init, Weightless::kStarts);
  }
  return found;
}

// The weights that set the model's sizes and tokenizer; a resumed run goes on with its own.
std::optional<Weights> weights_before(const TrainCommand& o,
                                      const std::optional<Checkpoint>& resumed) {
  if (resumed) return weights_of(o.train.checkpoint, *resumed);
  return weights_at(o.train.init);
}

// Sets the forms of a step: a continued run keeps its own, another one takes the fastest.
void take_forms(const TrainCommand& o, RunSpec& run, const std::optional<Checkpoint>& resumed) {
  take_forms(run, o.grid, resumed ? forms_of(resumed->meta) : choose_forms(run));
}

// Returns tokens in place of a captured module's example, which is trained on; no step reads them.
TokenInput example_of(const TrainCommand& o, const RunSpec& run) {
  if (o.train.validate_every > 0) {
    throw Error(ErrorCode::kUsage, "--validate-every", "an example cannot be divided",
                "give --text or --tokens");
  }
  const auto count = static_cast<std::size_t>(run.shape.batch * run.shape.context + 1);
  return {.tokens = memory_tokens("the example", std::vector<std::int32_t>(count)),
          .words =
              fmt::format("every step reads the example of {} (--text, --tokens)", run.model.name)};
}

// Opens the tokens and, in `o`, their tokenizer; sets the model and the forms of `run`. Closes
// the files of weights again: a checkpoint that is removed meanwhile would keep its place on the
// disk.
TokenSourcePtr open_inputs(TrainCommand& o, RunSpec& run, std::optional<Checkpoint> resumed) {
  const std::optional<Weights> weights = weights_before(o, resumed);
  if (o.train.resume && !resumed && !o.tokens.are_given()) {
    throw Error(ErrorCode::kInput, o.train.checkpoint, "there is no checkpoint to resume",
                "give --text, --data or --tokens to begin a run there");
  }
  o.train.on_example = run.model.captured != nullptr && !o.tokens.are_given();
  if (!o.train.on_example) check_takes_text(run.model);
  TokenInput input =
      o.train.on_example ? example_of(o, run) : open_tokens(o.tokens, pointer_to(weights));
  // Numbers are those of the weights' tokenizer, which stays with what is made of them.
  if (!input.tokenizer) input.tokenizer = tokenizer_for_numbers(pointer_to(weights));
  take_adapters(run, pointer_to(weights));
  if (!o.train.on_example) take_rows(run, *input.tokens);
  run.model = model_for(o.grid, pointer_to(weights), input.tokenizer.get());
  note_positions(run.model, origin_of(weights), run.shape.context);
  take_forms(o, run, resumed);
  o.train.tokenizer = std::move(input.tokenizer);
  o.read = std::move(input.words);
  return input.tokens;
}

// Sets `train.run` to the run with the training's own flags for the optimizer. Checkpoints keep its
// forms, as another version or device would choose others.
void set_run(TrainOptions& train, RunSpec run) {
  OptimizerOptions own = train.run.optimizer;
  own.moments = run.optimizer.moments;
  own.kind = run.optimizer.kind;
  run.optimizer = own;
  train.arguments["executor"] = Json::Array{name_of(run.executor)};
  train.arguments["attention"] = Json::Array{name_of(run.attention)};
  train.run = std::move(run);
  train.schedule.total_steps = train.steps;
}

int run_train(TrainCommand o, std::optional<Checkpoint> resumed,
              std::span<const std::string> arguments) {
  check_together(o);
  RunSpec run = run_of_flags(o, DeviceUse::kRun);
  check_effects(o, run);
  const Json environment = environment_of(arguments, run);
  check_files(o);
  probe_output(o.output);
  const TokenSourcePtr tokens = open_inputs(o, run, std::move(resumed));
  set_sample_prompt(o);
  check_run(run);
  rank_shape(run);
  set_run(o.train, run);
  TokenSplit split{tokens, nullptr};
  if (o.train.validate_every > 0) {
    split = split_tokens(tokens, o.validation_fraction.value_or(kDefaultValidationFraction));
  }
  const auto device = make_device(run);
  const auto start = std::chrono::steady_clock::now();
  const bool has_checkpoints = !o.train.checkpoint.empty();
  const StopSignal stop(has_checkpoints
                            ? "training ends after the step under way, with a checkpoint"
                            : "training ends after the step under way",
                        has_checkpoints ? "a checkpoint is saved after the step under way"
                                        : "nothing is saved, as there is no --checkpoint");
  const RankDevices devices = make_rank_devices(*device, run);
  if (const std::string hint = split_hint(run, environment); !hint.empty()) log_info("{}", hint);
  log_info("{}", o.read);
  if (trains_part(run)) {
    log_info("trained: {} of {} parameters of the model",
             format_count(static_cast<double>(trained_parameters(run))),
             format_count(static_cast<double>(parameter_formula(run.model))));
  }
  say_what_is_lost(o.train);
  say_packing(o.train, split.train);
  if (split.validation) say_validation(o.train, split.validation);
  TrainingView view(view_of(o, environment));
  const TrainResult result = with_oom_hint(run, [&] {
    return train(devices, o.train, split.train, split.validation, &stop,
                 [&, is_first = true](const TrainStep& step) mutable {
                   if (std::exchange(is_first, false)) say_forms(run);
                   view.add(step);
                 });
  });
  view.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  write_tables(o.output, "tracestep.train/1", environment,
               {summary(o, result, parameter_formula(run.model), seconds.count())},
               {view.curve().table()});
  if (!result.interrupted) return 0;
  const bool keeps_earlier = o.train.overwrite && result.steps == 0;
  log_warn("stopped by a signal; {}",
           o.train.checkpoint.empty() ? "nothing was saved, as there is no --checkpoint"
           : keeps_earlier            ? "no step was done, so the earlier checkpoints stay"
                                      : "--resume continues from the checkpoint");
  return stop.exit_status();
}

JobPlan plan_of(const TrainCommand& o, const std::optional<Checkpoint>& resumed) {
  check_together(o);
  RunSpec run = run_of_flags(o, DeviceUse::kPlan);
  check_effects(o, run);
  run.model = model_for(o.grid, pointer_to(weights_before(o, resumed)), nullptr);
  take_forms(o, run, resumed);
  check_run(run);
  JobPlan out = plan_of_steps(run, static_cast<double>(o.train.steps));
  // The bytes that a byte of text takes: the text itself, and at most one token for it.
  constexpr std::int64_t kBytesOfText = 1 + sizeof(std::int32_t);
  for (const auto* paths : {&o.tokens.text, &o.tokens.data.paths}) {
    if (!paths->empty()) out.host_bytes = kBytesOfText * std::ssize(read_text(*paths).text);
  }
  return out;
}

}  // namespace

Command train_command() {
  const auto options = std::make_shared<TrainCommand>();
  Command command{.name = "train"};
  OptionSet& set = command.options;
  add_token_options(set, options->tokens);
  add_field(set, options->grid, "batch", Values::kOne);
  add_field(set, options->grid, "context", Values::kOne);
  set.group("Training");
  add_field(set, options->grid, "accumulate", Values::kOne);
  for (const TrainField& field : train_fields()) add_flag(set, options->train, field);
  set.choice(
      "--recipe", options->recipe, {"gpt"},
      "options that are usual for a kind of model, where none are given: gpt has a cosine to "
      "a tenth of the rate, a warm-up of a twentieth of the steps and at most 2000, clip 1, "
      "weight decay 0.1 on matrices");
  add_file_options(set, *options);
  add_fields(set, options->grid, FieldGroup::kModel, Values::kOne);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kOne,
             "cpu; cuda[:N]; reference (float64, slow)");
  add_output_options(set, options->output);
  set.record(options->given);
  command.run = [options, set](std::span<const std::string> arguments) {
    auto resumed = complete(*options, set);
    options->train.arguments = kept_options(set, options->given);
    return run_train(*options, std::move(resumed), arguments);
  };
  command.plan = [options, set](std::span<const std::string>) {
    return std::vector{PlannedCell{.needs = plan_of(*options, complete(*options, set))}};
  };
  return command;
}

}  // namespace tracestep::cli

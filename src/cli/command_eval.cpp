// tracestep eval: loss and perplexity of weights on tokens, and the first batch's tensors for
// comparison with any other framework.
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/chosen_forms.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "cli/token_input.h"
#include "lab/report/known_columns.h"
#include "spec/check_run.h"
#include "train/evaluate.h"
#include "weights/model_for.h"
#include "weights/model_notes.h"

namespace tracestep::cli {
namespace {

struct EvalCommand {
  EvalOptions eval;
  TokenOptions tokens;
  RunGrid grid{{.model = preset("tiny"), .shape = {.batch = 4, .context = 128}}};
  OutputOptions output;
};

Table result_table(const EvalResult& r) {
  Table table{
      .name = "eval",
      .columns = {with_digits(6, col::loss.titled("", "mean cross-entropy in nats per token")),
                  real_column("perplexity", {}, {}, 3),
                  real_column("bits_per_byte", "bits per byte", {}, 4,
                              "of text, which the tokenizer tells of the tokens"),
                  real_column("first_batch_loss", "first batch loss", {}, 6), int_column("batches"),
                  int_column("tokens"),
                  int_column("text_bytes", "bytes of text", "that these tokens stand for")}};
  table.add_row({r.loss, r.perplexity, r.bits_per_byte ? Json(*r.bits_per_byte) : Json(),
                 r.first_batch_loss, r.batches, r.tokens, r.bytes ? Json(*r.bytes) : Json()});
  return table;
}

int finite_status(const EvalResult& result) {
  if (result.not_finite) {
    log_warn("not finite: {}", result.not_finite->str());
  } else if (std::isfinite(result.loss)) {
    return 0;
  } else {
    log_warn("the loss is {}", result.loss);
  }
  return exit_code(ErrorCode::kNotFinite);
}

// Evaluates a captured module on its example, or on the inputs of a file.
int eval_captured(EvalCommand o, std::span<const std::string> arguments) {
  RunSpec& run = o.eval.run;
  if (run.parallel.is_on()) fail_usage("--parallel", "an example is evaluated on one rank");
  const Json environment = environment_of(arguments, run);
  check_apart(std::vector<NamedPath>{{"--inputs", o.eval.inputs}, {"--init", o.eval.init}},
              std::vector<NamedPath>{{"--logits", o.eval.logits},
                                     {"--gradients", o.eval.gradients},
                                     {"--output", o.output.path}});
  probe_output(o.output);
  take_weights_of_model(run.model, o.eval.init, Weightless::kFails);
  check_run(run);
  const auto device = make_device(run);
  const EvalResult result = evaluate(*device, o.eval, nullptr);
  write_tables(o.output, "tracestep.eval/1", environment, {result_table(result)});
  return finite_status(result);
}

int run_eval(EvalCommand o, std::span<const std::string> arguments) {
  RunSpec& run = o.eval.run;
  run = placed(o.grid.combinations().front(), Takes::kOracle);
  const bool has_text = o.tokens.are_given();
  if (run.model.captured != nullptr && !has_text) return eval_captured(std::move(o), arguments);
  if (!o.eval.inputs.empty()) fail_usage("--inputs", "it goes with --program, without a text");
  if (has_text) check_takes_text(run.model);
  const Json environment = environment_of(arguments, run);
  take_weights_of_model(run.model, o.eval.init, Weightless::kFails);
  std::vector<NamedPath> inputs = o.tokens.inputs();
  inputs.push_back({"--init", o.eval.init});
  check_apart(inputs, std::vector<NamedPath>{{"--logits", o.eval.logits},
                                             {"--gradients", o.eval.gradients},
                                             {"--output", o.output.path}});
  probe_output(o.output);
  const std::optional<Weights> weights = weights_at(o.eval.init);
  TokenInput input = open_tokens(o.tokens, pointer_to(weights));
  // Numbers are taken to be those of the weights' tokenizer.
  if (!input.tokenizer) input.tokenizer = tokenizer_for_numbers(pointer_to(weights));
  o.eval.tokenizer = std::move(input.tokenizer);
  take_adapters(run, pointer_to(weights));
  take_rows(run, *input.tokens);
  run.model = model_for(o.grid, pointer_to(weights), o.eval.tokenizer.get());
  note_positions(run.model, origin_of(weights), run.shape.context);
  take_forms(run, o.grid, choose_forms(run));
  check_run(run);
  log_info("{}", input.words);
  const auto device = make_device(run);
  std::optional<CellProgress> progress;
  const EvalResult result = evaluate(*device, o.eval, input.tokens, [&](std::int64_t batches) {
    if (!progress) {
      say_forms(run);
      progress.emplace(static_cast<std::size_t>(batches));
    }
    progress->begin("batches");
  });
  progress.reset();
  for (const std::filesystem::path& path : {o.eval.logits, o.eval.gradients}) {
    if (!path.empty()) log_info("eval: {} is written", path.string());
  }
  write_tables(o.output, "tracestep.eval/1", environment, {result_table(result)});
  return finite_status(result);
}

}  // namespace

Command eval_command() {
  const auto options = std::make_shared<EvalCommand>();
  Command command{.name = "eval"};
  OptionSet& set = command.options;
  add_token_options(set, options->tokens);
  add_field(set, options->grid, "batch", Values::kOne);
  add_field(set, options->grid, "context", Values::kOne);
  set.integer("--batches", options->eval.batches, {1},
              "batches to average over; all when left out");
  set.path("--inputs", "FILE", options->eval.inputs,
           "with --program: the inputs (safetensors), instead of the example's");
  set.takes_files({".safetensors"});
  set.group("Files");
  add_init_option(set, options->eval.init);
  set.path("--logits", "FILE", options->eval.logits, "logits of the first batch (safetensors)");
  set.path("--gradients", "FILE", options->eval.gradients,
           "gradients of the first batch (safetensors)");
  add_fields(set, options->grid, FieldGroup::kModel, Values::kOne);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kOne,
             "cpu; cuda[:N]; reference (float64, slow)");
  add_output_options(set, options->output);
  runs_with(command, options, run_eval);
  return command;
}

}  // namespace tracestep::cli

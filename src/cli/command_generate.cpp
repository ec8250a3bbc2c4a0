// tracestep generate: samples from a model, showing the text as it comes.
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/chosen_forms.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "cli/text_stream.h"
#include "cli/token_input.h"
#include "lab/report/known_columns.h"
#include "nn/captured_programs.h"
#include "spec/check_run.h"
#include "tokens/text_source.h"
#include "train/generate.h"
#include "weights/model_for.h"
#include "weights/model_notes.h"

namespace tracestep::cli {
namespace {

struct GenerateCommand {
  GenerateOptions generate;
  std::string prompt, prompt_tokens, tokenizer;
  std::int64_t context = 0;  // 0: as long as the prompt and what is sampled
  RunGrid grid{{.model = preset("tiny"), .shape = {1, 1}, .launch_order = LaunchOrder::kDependent}};
  OutputOptions output;
};

bool has_numbers(const GenerateCommand& o) {
  return !o.prompt_tokens.empty();
}

// The tokenizer of prompt and text; nullptr: none is known, and numbers go in and out.
std::unique_ptr<Tokenizer> tokenizer_for(const GenerateCommand& o, const Weights* weights) {
  auto asked = tokenizer_called(o.tokenizer);
  if (has_numbers(o) && !asked) return tokenizer_for_numbers(weights);
  if (has_numbers(o)) return tokenizer_of(weights, std::move(asked));
  if (weights == nullptr && asked == nullptr) {
    throw Error(ErrorCode::kUsage, "--prompt", "no tokenizer is known without weights",
                "give --init W.safetensors, --tokenizer bytes or FILE, or --prompt-tokens");
  }
  return tokenizer_for_text(weights, std::move(asked));
}

void check_prompt(const GenerateCommand& o) {
  if (has_numbers(o) != o.prompt.empty()) {
    throw Error(
        ErrorCode::kUsage, "--prompt",
        has_numbers(o) ? "--prompt-tokens is given as well" : "there is nothing to continue",
        "give --prompt TEXT or --prompt-tokens N[,N]");
  }
}

// Reads all of stdin. A newline at the end is dropped, because a shell adds one.
std::string text_of_stdin() {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  std::string out;
  std::array<char, 4096> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), stdin)) {
    out.append(part.data(), count);
    if (out.size() > kMostBytes) fail_input("--prompt", "stdin has more than {} bytes", kMostBytes);
  }
  out = text_of_bytes(std::move(out), "stdin");
  if (out.ends_with('\n')) out.pop_back();
  if (out.empty()) fail_input("--prompt", "stdin is empty");
  return out;
}

std::vector<std::int64_t> prompt_of(const GenerateCommand& o, const Tokenizer* tokenizer) {
  std::vector<std::int64_t> out;
  if (has_numbers(o)) {
    for (std::size_t start = 0; start <= o.prompt_tokens.size();) {
      const std::size_t comma = std::min(o.prompt_tokens.find(',', start), o.prompt_tokens.size());
      out.push_back(parse_int("--prompt-tokens", o.prompt_tokens.substr(start, comma - start), 0));
      start = comma + 1;
    }
    return out;
  }
  return prompt_tokens(*tokenizer, o.prompt == "-" ? text_of_stdin() : o.prompt);
}

// Measures tokens per second from the second token on, because the program for single tokens is
// made when the first one has come.
class TokenClock {
 public:
  void count() {
    last_ = Clock::now();
    if (++count_ == kReady) ready_ = last_;
  }
  // Tokens per second after the first ones; nullopt: there were too few.
  std::optional<double> per_second() const {
    const std::chrono::duration<double> passed = last_ - ready_;
    if (count_ <= kReady || passed.count() <= 0.0) return std::nullopt;
    return static_cast<double>(count_ - kReady) / passed.count();
  }
  // Says the rate of many tokens; that of a few would be chance.
  void say() const {
    constexpr std::int64_t kEnough = 32;
    const auto rate = per_second();
    if (rate && count_ >= kEnough) {
      log_info("{} tokens, {:.4g} a second after the second", count_, *rate);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kReady = 2;
  std::int64_t count_ = 0;
  Clock::time_point ready_, last_;
};

Table result_table(const GenerateCommand& o, const Tokenizer* tokenizer,
                   const std::vector<std::int64_t>& tokens, const TokenClock& clock) {
  Table table{.name = "generate",
              .columns = {col::text, int_column("prompt_tokens"), int_column("new_tokens"),
                          reals_column("tokens"), with_digits(-1, col::tokens_per_s.titled(""))}};
  std::string text;
  TextStream stream(tokenizer, [&](std::string_view piece) { text += piece; });
  Json numbers = Json::array();
  for (std::int64_t token : tokens) {
    stream.add(token);
    numbers.push_back(token);
  }
  stream.finish();
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::optional<double> rate = clock.per_second();
  table.add_row({text, static_cast<std::int64_t>(o.generate.prompt.size()), count,
                 std::move(numbers), rate ? Json(*rate) : Json()});
  return table;
}

// Prints prompt and continuation as they come; nothing where the weights cannot be read.
void stream_text(const GenerateCommand& o, Device& device, const Tokenizer* tokenizer,
                 const StopSignal& stop) {
  TextStream stream(tokenizer, [](std::string_view piece) { write_text(piece, {}); });
  bool has_prompt = false;
  const auto begin = [&] {
    if (std::exchange(has_prompt, true)) return;
    for (std::int64_t token : text_of_prompt(tokenizer, o.generate.prompt)) stream.add(token);
  };
  TokenClock clock;
  generate(device, o.generate, &stop, [&](std::int64_t token) {
    clock.count();
    begin();
    stream.add(token);
  });
  begin();
  stream.finish();
  write_text("\n", {});
  clock.say();
}

// Returns the continuation alone, and shows its progress in a line.
std::vector<std::int64_t> sample_tokens(const GenerateCommand& o, Device& device,
                                        const StopSignal& stop, TokenClock& clock) {
  CellProgress progress(static_cast<std::size_t>(o.generate.tokens));
  return generate(device, o.generate, &stop, [&](std::int64_t) {
    clock.count();
    progress.begin("tokens");
  });
}

// Refuses more tokens than the model has learned positions, unless --context is given.
void check_positions(const GenerateCommand& o, std::int64_t needed) {
  const ModelConfig& model = o.generate.run.model;
  if (o.context > 0 || model.positions != Positions::kLearned || needed <= model.max_positions) {
    return;
  }
  const auto prompt = static_cast<std::int64_t>(o.generate.prompt.size());
  const std::string seen =
      fmt::format("{} tokens of the prompt and {} new ones are more than the {} positions of {}",
                  prompt, o.generate.tokens, model.max_positions, model.name);
  if (prompt >= model.max_positions) {
    throw Error(ErrorCode::kUsage, "--prompt", seen, "give a shorter one");
  }
  throw Error(ErrorCode::kUsage, "--max-tokens", seen,
              fmt::format("give at most {}", model.max_positions - prompt));
}

int run_generate(GenerateCommand o, std::span<const std::string> arguments) {
  RunSpec& run = o.generate.run;
  run = placed(o.grid.combinations().front(), Takes::kOracle);
  refuse_captured(run.model, "text cannot be generated by it");
  const Json environment = environment_of(arguments, run);
  take_weights_of_model(run.model, o.generate.init, Weightless::kFails);
  check_apart(std::vector<NamedPath>{{"--init", o.generate.init}},
              std::vector<NamedPath>{{"--output", o.output.path}});
  probe_output(o.output);
  // A path that is no model is reported first, whatever else is missing.
  const std::optional<Weights> weights = weights_at(o.generate.init);
  check_prompt(o);
  const auto tokenizer = tokenizer_for(o, pointer_to(weights));
  o.generate.prompt = prompt_of(o, tokenizer.get());
  const auto needed = static_cast<std::int64_t>(o.generate.prompt.size()) + o.generate.tokens;
  run.shape.context = o.context > 0 ? o.context : needed;
  take_adapters(run, pointer_to(weights));
  run.model = model_for(o.grid, pointer_to(weights), tokenizer.get());
  check_positions(o, needed);
  note_positions(run.model, origin_of(weights), run.shape.context);
  check_run(run);
  take_forms(run, o.grid, choose_forms(run));
  if (o.generate.init.empty()) log_warn("no --init: the weights are random");
  const auto device = make_device(run);
  const StopSignal stop("the text ends with the token under way");
  if (o.output.format == Format::kText && o.output.path.empty()) {
    stream_text(o, *device, tokenizer.get(), stop);
    return stop.exit_status();
  }
  TokenClock clock;
  const std::vector<std::int64_t> tokens = sample_tokens(o, *device, stop, clock);
  write_tables(o.output, "tracestep.generate/1", environment,
               {result_table(o, tokenizer.get(), tokens, clock)});
  return stop.exit_status();
}

}  // namespace

Command generate_command() {
  const auto options = std::make_shared<GenerateCommand>();
  Command command{.name = "generate"};
  OptionSet& set = command.options;
  set.group("Text");
  set.text("--prompt", "TEXT|-", options->prompt,
           "what to continue; -: what stdin holds, without a newline at its end");
  set.text("--prompt-tokens", "N[,N]", options->prompt_tokens, "the same, as token numbers");
  set.integer("--max-tokens", options->generate.tokens, {1, kShapeRange.max}, "tokens to sample");
  set.integer("--context", options->context, kShapeRange,
              "longest text, prompt included; as long as needed");
  add_init_option(set, options->generate.init);
  set.text("--tokenizer", "bytes|FILE|DIR", options->tokenizer,
           "instead of the one that was saved with the weights");
  set.group("Sampling");
  set.real("--temperature", options->generate.sampling.temperature, {},
           "0 is always the most likely");
  set.integer("--top-k", options->generate.sampling.top_k, {0}, "only the K most likely; 0 is all");
  set.real("--top-p", options->generate.sampling.top_p, {0.0, 1.0},
           "only the most likely that make up this probability");
  add_fields(set, options->grid, FieldGroup::kModel, Values::kOne);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kOne,
             "cpu; cuda[:N]; reference (float64, slow)");
  add_output_options(set, options->output);
  runs_with(command, options, run_generate);
  return command;
}

}  // namespace tracestep::cli

// tracestep study: trains a small model, times it and a larger one, takes their steps apart, and
// writes one report.
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "cli/study.h"
#include "cli/text_stream.h"
#include "train/output_file.h"
#include "train/text_source.h"
#include "train/tokenizer.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kContext = 128, kBatch = 4;
// From here on each cell gets fewer steps, so that the whole ends in time on a slow machine.
constexpr double kTimingBudgetSeconds = 150.0;
constexpr double kValidationFraction = 0.05;

struct StudyOptions {
  fs::path folder = "out";
  std::int64_t train_steps = 200;
  bool quick = false;
  RunOptions run;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One line that stays, for logs as for people: a study is long enough to want them.
void announce(const std::string& what) {
  log_info("study: {}", what);
}

std::vector<fs::path> texts_here() {
  std::vector<fs::path> out;
  for (const char* path : {"README.md", "docs", "src", "/usr/share/common-licenses"}) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) out.emplace_back(path);
  }
  if (out.empty()) {
    throw Error(ErrorCode::kInput, "study", "there is no text to train on",
                "run it in the folder of the repository");
  }
  return out;
}

ModelConfig trained_model(std::int64_t vocab) {
  ModelConfig model = preset("tiny");
  model.vocab = vocab;
  return model;
}

std::string sample_text(Device& device, const StudyOptions& o, const ModelConfig& model,
                        const fs::path& weights, const Tokenizer& tokenizer) {
  GenerateOptions options;
  options.model = model;
  options.init = weights;
  options.seed = o.run.seed;
  options.temperature = 0.7;
  for (std::int32_t token : tokenizer.encode("The ")) options.prompt.push_back(token);
  std::string out;
  TextStream stream(&tokenizer, [&](std::string_view piece) { out += piece; });
  for (std::int64_t token : options.prompt) stream.add(token);
  generate(device, options, nullptr, [&](std::int64_t token) { stream.add(token); });
  stream.finish();
  return out;
}

TrainOptions train_options(const StudyOptions& o, const ModelConfig& model) {
  TrainOptions out;
  out.model = model;
  out.shape = {kBatch, kContext};
  out.steps = o.train_steps;
  out.seed = o.run.seed;
  out.schedule = {.kind = ScheduleKind::kCosine,
                  .lr = 3e-3,
                  .lr_min = 3e-4,
                  .warmup_steps = std::min<std::int64_t>(20, o.train_steps / 2),
                  .total_steps = o.train_steps};
  out.optimizer.weight_decay = 0.1;
  out.optimizer.clip = 1.0;
  out.validate_every = std::max<std::int64_t>(1, o.train_steps / 4);
  out.save = o.folder / "tiny.safetensors";
  out.log = o.folder / "train.jsonl";
  return out;
}

StudyTraining train_tiny(const StudyOptions& o) {
  const std::vector<fs::path> paths = texts_here();
  const TextSource source = read_text(paths);
  const auto tokenizer = byte_tokenizer();
  StudyTraining out;
  out.model = trained_model(tokenizer->vocab_size());
  out.shape = {kBatch, kContext};
  for (const fs::path& path : paths) out.texts.push_back(path.string());
  out.file_count = static_cast<std::int64_t>(source.files.size());
  out.text_bytes = static_cast<std::int64_t>(source.text.size());
  announce(fmt::format("training tiny for {} steps on {} files, {}", o.train_steps, out.file_count,
                       format_bytes(out.text_bytes)));
  const TokenSplit split =
      split_tokens(memory_tokens("text", tokenizer->encode(source.text)), kValidationFraction);
  const TrainOptions options = train_options(o, out.model);
  const auto device = make_device(o.run);
  const auto start = Clock::now();
  ProgressLine progress;
  out.result =
      train(*device, options, split.train, split.validation, nullptr, [&](const TrainStep& step) {
        progress.update(
            fmt::format("training  step {}/{}  loss {:.3f}", step.step, o.train_steps, step.loss));
      });
  out.seconds = seconds_since(start);
  progress.done();
  tokenizer->save(options.save.string() + ".tokenizer");
  out.sample = sample_text(*device, o, out.model, options.save, *tokenizer);
  announce(fmt::format("trained in {}, loss {:.3f} after {:.3f}",
                       format_duration_ms(out.seconds * 1e3), out.result.steps.back().loss,
                       out.result.steps.front().loss));
  return out;
}

CellSpec cell_spec(const StudyOptions& o, const ModelConfig& model, Mode mode, Granularity ops,
                   bool is_late) {
  const bool is_short = o.quick || is_late;
  const bool is_tiny = model.name == "tiny";
  return {.step = {.model = model, .shape = {kBatch, kContext}, .mode = mode, .ops = ops},
          .warmup = is_tiny && !is_short ? 3 : 1,
          .steps = is_short  ? 2
                   : is_tiny ? 10
                             : 4,
          .instrumented_steps = 1,
          .seed = o.run.seed};
}

std::vector<StudyCell> time_cells(const StudyOptions& o) {
  std::vector<ModelConfig> models{trained_model(byte_tokenizer()->vocab_size())};
  models.push_back(preset("small"));
  std::vector<StudyCell> out;
  ProgressLine progress;
  const auto start = Clock::now();
  for (const ModelConfig& model : models) {
    announce(
        fmt::format("timing {}: {} modes, primitive and fused", model.name, std::size(kAllModes)));
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (Mode mode : kAllModes) {
        progress.update(fmt::format("timing  {} {} {}", model.name, name_of(mode), name_of(ops)));
        const bool is_late = seconds_since(start) > kTimingBudgetSeconds;
        const CellSpec spec = cell_spec(o, model, mode, ops, is_late);
        out.push_back({spec, measure_cell([&o] { return make_device(o.run); }, spec)});
      }
    }
  }
  return out;
}

// The rows of `bench`, complete: the first table of study.json.
Table cells_table(const Study& study) {
  Table table{.name = "cells", .title = "Every measured cell", .columns = cell_columns()};
  for (const StudyCell& cell : study.cells) table.add_row(cell_row(cell.result));
  return table;
}

int run_study(const StudyOptions& o, std::span<const std::string> arguments) {
  check_device(o.run, {"cpu", "cuda"});
  const Json environment = environment_of(arguments, o.run);
  std::error_code error;
  fs::create_directories(o.folder, error);
  const fs::path page = o.folder / "study.md", data = o.folder / "study.json";
  check_writable(page);
  check_writable(data);
  const auto start = Clock::now();
  Study study;
  study.training = train_tiny(o);
  study.cells = time_cells(o);
  study.seconds = seconds_since(start);
  const std::vector<StudySection> sections = study_sections(study);
  const std::string text = study_page(sections, environment);
  std::vector<Table> tables{cells_table(study)};
  for (const StudySection& section : sections) {
    tables.insert(tables.end(), section.tables.begin(), section.tables.end());
  }
  write_output({"tracestep.study/1", environment, std::move(tables)}, Format::kJson, data.string());
  write_file(page, text);
  write_text(text, {});
  announce(fmt::format("done in {}; the report is {}, its numbers {}",
                       format_duration_ms(study.seconds * 1e3), page.string(), data.string()));
  return 0;
}

}  // namespace

Command study_command() {
  const auto options = std::make_shared<StudyOptions>();
  Command command{
      .name = "study",
      .summary = "all of it, as one report in plain English",
      .details =
          "Trains the tiny model on the text files of the current folder, times it and the "
          "small model in every mode and both granularities, takes their steps apart by "
          "component, phase and memory category, and writes study.md and study.json.",
      .examples = {{"", "the whole study, into out/"},
                   {"--quick --train-steps 50 --output-dir /tmp/look", "a short look"}}};
  OptionSet& set = command.options;
  set.group("The study");
  set.path("--output-dir", "DIR", options->folder, "where the report goes; out");
  set.integer("--train-steps", options->train_steps, {1, 1000000}, "200");
  set.toggle("--quick", options->quick, "two timed steps per cell");
  set.group("How it runs");
  set.text("--device", "NAME", options->run.device, "cpu, or cuda[:N]");
  set.integer("--threads", options->run.threads, {1, 4096},
              "CPU threads; OMP_NUM_THREADS, else all allowed cores");
  set.bytes("--memory-limit", options->run.memory_limit_bytes,
            "behave like a device with this much memory, as 16GiB");
  set.integer("--seed", options->run.seed, {0}, "of weights, batches and sampling; 0");
  command.run = [options](std::span<const std::string> arguments) {
    return run_study(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli

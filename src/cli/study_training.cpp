#include "cli/study_training.h"

#include <algorithm>
#include <chrono>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/text_stream.h"
#include "session/devices.h"
#include "tokens/text_source.h"
#include "tokens/tokenizer.h"
#include "train/generate.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kSteps = 200, kLeastSteps = 4;
constexpr double kValidationFraction = 0.05;
constexpr std::int64_t kMostValidationBatches = 8;
// The share of the training's time for which steps are planned, as validation takes a part of it;
// the share of all time after which the clock ends training, before saving and sampling.
constexpr double kShareOfSteps = 0.7, kShareOfTraining = 0.85;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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

// Thrown to end the text of a sample when the time for it is over.
struct SampleIsOver {};

std::string sample_text(Device& device, const StudyTrainingOptions& o, const fs::path& weights,
                        const Tokenizer& tokenizer, Clock::time_point end) {
  GenerateOptions options;
  options.run.model = o.run.model;
  options.run.seed = o.run.seed;
  options.init = weights;
  options.sampling.temperature = 0.7;
  for (std::int32_t token : tokenizer.encode("The ")) options.prompt.push_back(token);
  std::string out;
  TextStream stream(&tokenizer, [&](std::string_view piece) { out += piece; });
  for (std::int64_t token : options.prompt) stream.add(token);
  try {
    generate(device, options, nullptr, [&](std::int64_t token) {
      stream.add(token);
      if (Clock::now() >= end) throw SampleIsOver();
    });
  } catch (const SampleIsOver&) {
  }
  stream.finish();
  return out;
}

// The options of the training. `seconds`: what it may take; 0: as long as its steps do.
TrainOptions train_options(const StudyTrainingOptions& o, std::int64_t steps, double seconds) {
  TrainOptions out;
  out.run = o.run;
  out.steps = steps;
  out.seconds = seconds;
  out.schedule = {.kind = ScheduleKind::kCosine,
                  .lr = 3e-3,
                  .lr_min = 3e-4,
                  .warmup_steps = std::min<std::int64_t>(20, steps / 2),
                  .total_steps = steps};
  out.run.optimizer.weight_decay = 0.1;
  out.run.optimizer.clip = 1.0;
  out.validate_every = std::max<std::int64_t>(1, steps / 4);
  // Validating all tokens would take longer than the training steps.
  out.validation_batches = std::clamp<std::int64_t>(steps / 10, 1, kMostValidationBatches);
  out.save = o.folder / kStudyWeights;
  out.log = o.folder / kStudyLog;
  return out;
}

// The number of steps that the time allows, the shape of their batch, and the seconds of one.
struct Steps {
  std::int64_t count;
  BatchShape shape;
  double seconds = 0;  // 0: not known
};

// Measures the seconds of a step, the second one of a short training whose result is thrown away.
double seconds_of_step(Device& device, const StudyTrainingOptions& o, const TokenSourcePtr& tokens,
                       const BatchShape& shape) {
  TrainOptions pilot;
  pilot.run = o.run;
  pilot.run.shape = shape;
  pilot.steps = 2;
  double out = 0;
  train(device, pilot, tokens, nullptr, nullptr, [&](const TrainStep& step) {
    out = static_cast<double>(shape.batch * shape.context) / step.tokens_per_s;
  });
  return out;
}

// Chooses steps that `seconds` allow: short ones if too few of the usual size would fit.
Steps steps_for(Device& device, const StudyTrainingOptions& o, const TokenSourcePtr& tokens,
                double seconds) {
  constexpr BatchShape kShort{.batch = 1, .context = 32};
  const BatchShape usual = o.run.shape;
  if (o.steps) return {*o.steps, usual};
  if (seconds <= 0) return {kLeastSteps, kShort};
  const auto start = Clock::now();
  const auto fitting = [&](const BatchShape& shape, double step_seconds) {
    const double left = seconds - seconds_since(start);
    const auto count = static_cast<std::int64_t>(kShareOfSteps * left / step_seconds);
    return Steps{std::clamp(count, kLeastSteps, kSteps), shape, step_seconds};
  };
  const double of_short = seconds_of_step(device, o, tokens, kShort);
  const auto tokens_of = [](const BatchShape& shape) {
    return static_cast<double>(shape.batch * shape.context);
  };
  const double most = of_short * tokens_of(usual) / tokens_of(kShort);
  // Two of them for their time, and the least ones.
  if (most * static_cast<double>(kLeastSteps + 2) > seconds) return fitting(kShort, of_short);
  return fitting(usual, seconds_of_step(device, o, tokens, usual));
}

}  // namespace

StudyTraining train_for_study(const StudyTrainingOptions& o, double seconds) {
  const auto begin = Clock::now();
  const std::vector<fs::path> paths = texts_here();
  const TextSource source = read_text(paths);
  const std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  StudyTraining out;
  for (const fs::path& path : paths) out.texts.push_back(path.string());
  out.file_count = static_cast<std::int64_t>(source.files.size());
  out.text_bytes = static_cast<std::int64_t>(source.text.size());
  const TokenSplit split =
      split_tokens(memory_tokens("text", tokenizer->encode(source.text)), kValidationFraction);
  const auto device = make_device(o.run);
  const Steps steps =
      steps_for(*device, o, split.train, kShareOfTraining * (seconds - seconds_since(begin)));
  constexpr double kLeast = 3;  // steps: one tells nothing of the loss
  const double left =
      std::max(kLeast * steps.seconds, kShareOfTraining * (seconds - seconds_since(begin)));
  // A number of steps that was asked for, or the least one, is run in full.
  const bool is_in_full = o.steps.has_value() || steps.seconds <= 0;
  TrainOptions options = train_options(o, steps.count, is_in_full ? 0.0 : left);
  out.shape = options.run.shape = steps.shape;
  options.tokenizer = tokenizer;
  log_info("study: training {} for {} steps on {}: {}", o.run.model.name, options.steps,
           fmt::join(out.texts, ", "), words_of(source));
  const auto start = Clock::now();
  ProgressLine progress;
  const auto add = [&](const TrainStep& step) {
    out.steps.push_back(step);
    progress.update(
        fmt::format("training  step {}/{}  loss {:.3f}", step.step, options.steps, step.loss));
  };
  const TrainResult result = train(*device, options, split.train, split.validation, o.stop, add);
  if (result.interrupted) return {};
  out.seconds = seconds_since(start);
  progress.done();
  log_info("study: the trained model is {}, its steps {}", options.save.string(),
           options.log.string());
  const auto all =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  out.sample = sample_text(*device, o, options.save, *tokenizer, begin + all);
  return out;
}

}  // namespace tracestep::cli

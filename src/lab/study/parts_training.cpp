// The part of the study that trains a model, and the one that compares precisions.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "base/units.h"
#include "lab/measure/statistics.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "lab/study/study.h"

namespace tracestep {

inline auto stored_members(TrainStep& s) {
  auto& [step, loss, norm, lr, rate, validation, sample, scale, skipped, not_finite] = s;
  return std::tie(step, loss, norm, lr, rate, validation, sample, scale, skipped, not_finite);
}
inline auto stored_members(StudyTraining& s) {
  auto& [shape, texts, files, bytes, steps, seconds, sample] = s;
  return std::tie(shape, texts, files, bytes, steps, seconds, sample);
}

namespace {

constexpr std::size_t kShownSteps = 120;  // of a loss curve
constexpr std::size_t kLastSteps = 20;    // the loss at the end is their mean

// Says what is trained on: "1,178 files (5.35 MiB) of README.md, docs, src".
std::string words_of_text(const StudyTraining& t) {
  return fmt::format("{} files ({}) of {}", grouped(t.file_count), format_bytes(t.text_bytes),
                     fmt::join(t.texts, ", "));
}

Table loss_table(const StudyTraining& t) {
  const Fields<TrainStep> fields = {
      {int_column("step"), &TrainStep::step},
      {real_column("loss", "loss", "", 3), &TrainStep::loss},
      {real_column("validation_loss", "validation loss", "", 3),
       [](const TrainStep& s) { return or_null(s.validation_loss); }},
      {real_column("grad_norm", "gradient norm", "", 2), &TrainStep::grad_norm},
      {real_column("lr", "learning rate", "", -1), &TrainStep::lr},
      {real_column("tokens_per_s", "tokens/s", "", 0), &TrainStep::tokens_per_s},
      {text_column("text", {}, "what it is trained on"),
       [text = words_of_text(t)](const TrainStep&) { return text; }}};
  const std::size_t stride = std::max<std::size_t>(1, t.steps.size() / kShownSteps);
  std::vector<TrainStep> shown;
  for (std::size_t i = 0; i < t.steps.size(); ++i) {
    const bool is_last = i + 1 == t.steps.size();
    if (i % stride == 0 || is_last || t.steps[i].validation_loss) shown.push_back(t.steps[i]);
  }
  return table_of("training", "Loss during training", fields, shown);
}

// Writes generated text as a block of code, whatever it contains.
std::string as_code(std::string text) {
  std::ranges::replace(text, '`', '\'');
  return "```text\n" + text + "\n```";
}

SectionValues values_of(const StudyTraining& t, const ModelConfig& model) {
  std::vector<double> rates;
  rates.reserve(t.steps.size());
  double steps_ms = 0;
  for (const TrainStep& s : t.steps) {
    rates.push_back(s.tokens_per_s);
    steps_ms += static_cast<double>(t.shape.batch * t.shape.context) / s.tokens_per_s * 1e3;
  }
  // A single batch says little: losses of batches differ by more than a step changes them.
  const std::size_t count = std::min<std::size_t>(kLastSteps, (t.steps.size() + 1) / 2);
  double tail = 0;
  for (std::size_t i = t.steps.size() - count; i < t.steps.size(); ++i) tail += t.steps[i].loss;
  const auto fixed = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  const auto validation = t.steps.back().validation_loss;
  const std::string held_out =
      validation ? text_of_section("training", "Held out",
                                   {{"loss", fixed(*validation, 2)},
                                    {"perplexity", fixed(std::exp(*validation), 1)}})
                 : std::string();
  return {{"parameters", format_count(static_cast<double>(parameter_formula(model)))},
          {"layers", std::to_string(model.layers)},
          {"width", std::to_string(model.d_model)},
          {"steps", std::to_string(t.steps.size())},
          {"batch", std::to_string(t.shape.batch)},
          {"context", std::to_string(t.shape.context)},
          {"text", words_of_text(t)},
          {"time", format_duration_ms(t.seconds * 1e3)},
          {"steps_time", format_duration_ms(steps_ms)},
          {"rate", fixed(median_of(rates), 0)},
          {"vocab", std::to_string(model.vocab)},
          {"guess", fixed(std::log(static_cast<double>(model.vocab)), 2)},
          {"first", fixed(t.steps.front().loss, 2)},
          {"last", fixed(tail / static_cast<double>(count), 2)},
          {"averaged", std::to_string(count)},
          {"held_out", held_out}};
}

}  // namespace

// Trains the smallest model for the time that is left, if the machine trains, and adds a section.
void training_part(StudyContext& context) {
  if (!context.machine.train || context.driver().is_stopped()) return;
  const ModelConfig& model = context.sizes.models.front();
  const auto t = context.driver().besides<StudyTraining>(
      "training", full_key(context.here({.model = model})),
      [&] { return context.machine.train(context.seconds_left()); });
  if (t.steps.empty()) return;  // a signal came
  context.sections.push_back(section("training", {loss_table(t)}, values_of(t, model)));
  context.sections.back().reading +=
      "\n\n" + text_of_section("training", "Sample") + "\n\n" + as_code(t.sample);
}

void add_precision_section(StudyContext& context) {
  std::vector<PrecisionCell> cells;
  for (const CellResult& cell : context.measured(runs_in(context, "steps"))) {
    const auto error = context.errors.find(key_of(cell.spec).dump());
    cells.push_back({cell, error == context.errors.end() ? std::nullopt : error->second});
  }
  if (cells.empty()) return;
  context.sections.push_back(
      section("precision", {precision_step_table(cells), precision_component_table(cells)}));
  const bool has_formats = context.machine.traits.has_product_formats();
  context.sections.back().reading +=
      " " + text_of_section("precision", has_formats ? "Formats" : "Float32");
}

}  // namespace tracestep

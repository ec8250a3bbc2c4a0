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
namespace {

constexpr std::size_t kShownSteps = 120;  // of a loss curve
constexpr std::size_t kLastSteps = 20;    // that the loss at the end is the mean of

// "1,178 files (5.35 MiB) of README.md, docs, src".
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

// Generated text as a block of code, whatever it contains.
std::string as_code(std::string text) {
  std::ranges::replace(text, '`', '\'');
  return "```text\n" + text + "\n```";
}

std::string reading_of(const StudyTraining& t) {
  std::vector<double> rates;
  rates.reserve(t.steps.size());
  double steps_ms = 0;
  for (const TrainStep& s : t.steps) {
    rates.push_back(s.tokens_per_s);
    steps_ms += static_cast<double>(t.shape.batch * t.shape.context) / s.tokens_per_s * 1e3;
  }
  // One batch says little: their losses differ by more than a step changes.
  const std::size_t count = std::min<std::size_t>(kLastSteps, (t.steps.size() + 1) / 2);
  double tail = 0;
  for (std::size_t i = t.steps.size() - count; i < t.steps.size(); ++i) tail += t.steps[i].loss;
  const auto validation = t.steps.back().validation_loss;
  const std::string held_out =
      validation
          ? fmt::format(", and is {:.2f} on text that is not trained on, a perplexity of {:.1f}",
                        *validation, std::exp(*validation))
          : std::string();
  return fmt::format(
      "A model of {} parameters ({} layers, {} wide, one token per byte) was trained for {} steps "
      "of {} × {} tokens on {}: {} in all, {} of them in the steps themselves, "
      "{:.0f} tokens/s in the median step. The loss is the mean cross-entropy in nats per byte: "
      "guessing evenly among {} bytes costs "
      "{:.2f}. It went from {:.2f} in the first batch to {:.2f}, the mean of the last {}{}. "
      "Validation loss is measured on the last part of the text, which is not trained on.\n\nWhat "
      "it writes when asked to continue \"The \":\n\n{}",
      format_count(static_cast<double>(parameter_formula(t.model))), t.model.layers,
      t.model.d_model, t.steps.size(), t.shape.batch, t.shape.context, words_of_text(t),
      format_duration_ms(t.seconds * 1e3), format_duration_ms(steps_ms), median_of(rates),
      t.model.vocab, std::log(static_cast<double>(t.model.vocab)), t.steps.front().loss,
      tail / static_cast<double>(count), count, held_out, as_code(t.sample));
}

}  // namespace

void training_part(StudyContext& context) {
  if (!context.machine.train) return;
  // Training always runs, whatever the time left.
  const RunSpec step =
      context.here({.model = context.sizes.models.front(), .shape = context.sizes.shape});
  const StudyTraining t =
      context.machine.train(std::max(1.0, context.seconds_left()), 1e3 * context.seconds_of(step));
  context.sections.push_back({.id = "training",
                              .title = "Training on bytes",
                              .reading = reading_of(t),
                              .tables = {loss_table(t)}});
}

void add_precision_section(StudyContext& context) {
  std::vector<PrecisionCell> cells;
  for (const ModelConfig& model : context.sizes.precise) {
    for (const CellResult& cell : context.measured(precise_steps(context, model).runs)) {
      const auto error = context.errors.find(key_of(cell.spec).dump());
      cells.push_back({cell, error == context.errors.end() ? std::nullopt : error->second});
    }
  }
  if (cells.empty()) return;
  context.sections.push_back(
      {.id = "precision",
       .title = "A step in each precision",
       .reading =
           std::string("Time, peak and error of the same step; errors are of one sequence and no "
                       "more layers than the column says. ") +
           (context.machine.traits.has_product_formats()
                ? "A GPU multiplies 16-bit operands and TF32 on matrix units of their own."
                : "A CPU multiplies every format in float32 here, so a lower precision saves bytes "
                  "and no arithmetic."),
       .tables = {precision_step_table(cells), precision_component_table(cells)}});
}

}  // namespace tracestep

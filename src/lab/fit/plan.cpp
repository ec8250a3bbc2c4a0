#include "lab/fit/plan.h"

#include "base/error.h"
#include "base/units.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/parse_words.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr double kSecondsPerDay = 86'400;

double tokens_of(const Training& training, double tokens_per_s) {
  if (training.tokens > 0) return static_cast<double>(training.tokens);
  return training.days * kSecondsPerDay * tokens_per_s;
}

double device_hours(const Training& training, double tokens_per_s) {
  return 24 * days_of(training, tokens_per_s) * training.devices;
}

// Returns the MFU, the percentage of the devices' peak FLOP/s that the model uses; 0: unknown.
double mfu_of(const FitQuestion& q, const Remedy& r) {
  if (q.times == nullptr) return 0;
  Prediction prediction{.run = r.step};
  prediction.time.ms = r.figures.ms;
  if (q.times->sheet != nullptr) {
    prediction.peak_tflops = q.times->sheet->product_tflops(r.step.precision);
  }
  return mfu_percent(prediction);
}

}  // namespace

double tokens_per_s(const FitQuestion& question, const Remedy& remedy) {
  if (question.times == nullptr) return 0;
  const auto tokens = static_cast<double>(tokens_of_step(remedy.step));
  return 1e3 * tokens / remedy.figures.ms;
}

double days_of(const Training& training, double tokens_per_s) {
  if (tokens_per_s <= 0) return 0;
  if (training.tokens == 0) return training.days;
  return static_cast<double>(training.tokens) / tokens_per_s / kSecondsPerDay;
}

Table plan_table(const FitQuestion& question, const std::vector<Remedy>& plans,
                 const Training& training) {
  using R = const Remedy&;
  const auto speed = [&](R r) { return tokens_per_s(question, r); };
  Fields<Remedy> fields = {
      {col::devices("that share the step"), [&](R) { return training.devices; }},
      {col::device, [&](R) { return or_null(training.device); }},
      {col::parallel("how they share it"), [](R r) { return name_of(r.step.parallel); }},
      {to_copy(col::flags("beyond those that were given")), [](R r) { return or_null(r.command); }},
      {col::peak_bytes.titled("peak of each"), [](R r) { return r.figures.peak_bytes; }},
      {col::spare_bytes, [&](R r) { return question.limit_bytes - r.figures.peak_bytes; }}};
  if (question.times != nullptr) {
    fields.add(Fields<Remedy>{{col::predicted_ms, [](R r) { return r.figures.ms; }},
                              {col::tokens_per_s("of all devices together"), speed},
                              {col::mfu_percent, [&](R r) {
                                 return when(mfu_of(question, r) > 0, mfu_of(question, r));
                               }}});
  }
  if (question.times != nullptr && (training.tokens > 0 || training.days > 0)) {
    fields.add(Fields<Remedy>{
        {text_column("tokens", "in all"),
         [&](R r) { return format_count(tokens_of(training, speed(r))); }},
        {real_column("days", {}, {}, 1), [&](R r) { return days_of(training, speed(r)); }},
        {real_column("device_hours", "device hours", {}, 0),
         [&](R r) { return device_hours(training, speed(r)); }}});
    if (training.tokens > 0 && training.days > 0) {
      fields.add(data_only(real_column("wanted_days", {}, {}, 1, "in which it is to be done")),
                 [&](R) { return training.days; });
    }
    if (training.cost_per_hour > 0) {
      fields.add(real_column("cost", {}, {}, 0, "in the currency of option cost_per_hour"),
                 [&](R r) { return training.cost_per_hour * device_hours(training, speed(r)); });
    }
  }
  fields.add(col::severity, [](R r) { return when(!r.command.empty(), name_of(r.severity)); });
  fields.add(data_only(col::command), [](R r) { return command_of(r); });
  fields.add(task_fields(), [&](R) { return &question.step; });
  Table table = table_of("plan", "What it takes, the smallest change first", fields, plans);
  note_micro_batches(plans, table);
  return table;
}

void note_micro_batches(const std::vector<Remedy>& remedies, Table& table) {
  const auto is_divided = [](const Remedy& r) { return r.micro_batches > 1; };
  if (std::ranges::none_of(remedies, is_divided)) return;
  table.notes.push_back(
      "micro-batches are of train, whose batch is then one of them: the column command has it "
      "whole");
}

std::vector<Parallel> parallel_choices(const RunSpec& step, int ranks, int of_node) {
  std::vector<Parallel> out;
  for (int tensor = 1; tensor <= ranks && tensor <= of_node; tensor *= 2) {
    Parallel choice{.ranks = ranks, .tensor = tensor, .divides_rows = tensor > 1};
    if (ranks % tensor != 0) continue;
    const bool has_replicas = choice.replicas() > 1 && step.mode == Mode::kStep;
    for (int shard = 0; shard <= (has_replicas ? 3 : 0); ++shard) {
      choice.shard = shard;
      RunSpec divided = step;
      divided.parallel = choice;
      if (!refusal_of(divided)) out.push_back(choice);
    }
  }
  return out;
}

}  // namespace tracestep

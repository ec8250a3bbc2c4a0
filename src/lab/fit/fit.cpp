#include "lab/fit/fit.h"

#include <algorithm>
#include <optional>

#include "analysis/cost.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/units.h"
#include "exec/executor.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

struct Fit {
  const MemoryCell& cell;
  const FitQuestion& question;
  const std::optional<Prediction>& time;

  const RunSpec& step() const { return cell.run.spec.step; }
  std::int64_t peak() const { return cell.run.predicted_peak_bytes; }
  std::int64_t spare() const { return question.limit_bytes - peak(); }
  double tokens_per_s() const {
    return 1e3 * static_cast<double>(tokens_of_step(step())) / time->time.ms;
  }
};

// The title of a step: "llama-2-7b, 6.74 B parameters: batch 1, context 4096, bf16, step"; without
// a name for a model of one's own sizes.
std::string title_of(const RunSpec& step) {
  const std::string count = format_count(static_cast<double>(parameter_formula(step.model)));
  const bool is_custom = step.model.name == "custom";
  return fmt::format("{}{} parameters: batch {}, context {}, {}, {}",
                     is_custom ? "" : step.model.name + ", ", count, step.shape.batch,
                     step.shape.context, name_of(step.precision), name_of(step.mode));
}

}  // namespace

FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question) {
  if (peak_bytes > question.limit_bytes) return FitVerdict::kDoesNotFit;
  return peak_bytes > question.within_bytes() ? FitVerdict::kTight : FitVerdict::kFits;
}

Table fit_table(const MemoryCell& cell, const FitQuestion& question) {
  using F = const Fit&;
  const auto status_of = [](F f) { return name_of(fit_verdict(f.peak(), f.question)); };
  Column status = without_run(col::status("ok; tight: it leaves less than the margin; or oom"));
  status.words.emplace_back("tight", "fits tightly");
  Fields<Fit> fields = {
      {data_only(as_key(text_column("step"))), [](F f) { return label_of(f.cell); }},
      {status, status_of},
      {col::peak_bytes.titled("predicted peak"), &Fit::peak},
      {col::limit_bytes, [](F f) { return f.question.limit_bytes; }},
      {col::spare_bytes("empty: it does not fit"),
       [](F f) { return when(f.spare() >= 0, f.spare()); }},
      {col::missing_bytes, [](F f) { return when(f.spare() < 0, -f.spare()); }}};
  if (const std::int64_t on_host = host_bytes(cell.run.program); on_host > 0) {
    fields.add(col::host_bytes, [on_host](F) { return on_host; });
  }
  fields.add(task_fields(), [](F f) { return &f.step(); });
  fields.add(data_only(col::where("on which devices; empty: on this one")), [](F f) {
    const Predictor* times = f.question.times;
    return or_null(where_of(f.step(), times != nullptr ? times->sheet : nullptr));
  });
  fields.add(data_only(col::ranks), [](F f) { return f.step().parallel.ranks; });
  std::optional<Prediction> time;
  if (const Predictor* times = question.times) {
    time = predict_program(cell.run.spec.step, cell.run.program, cell.run.traits, *times);
    fields.add(col::predicted_ms, [](F f) { return f.time->time.ms; });
    fields.add(col::tokens_per_s("at that time"), &Fit::tokens_per_s);
  }
  fields.add(to_copy(col::command), [](F f) { return command_of(f.step()); });
  Table table = table_of("fit", title_of(cell.run.spec.step), fields,
                         std::vector<Fit>{{cell, question, time}});
  if (time && question.times->model.is_measured()) {
    table.notes.push_back(fmt::format("nine of ten such steps take {} to {}",
                                      format_duration_ms(time->time.low_ms),
                                      format_duration_ms(time->time.high_ms)));
    if (const std::string note = correction_note({&*time, 1}); !note.empty()) {
      table.notes.push_back("times are " + note);
    }
  }
  return table;
}

}  // namespace tracestep

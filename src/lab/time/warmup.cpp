#include "lab/time/tables.h"

#include <fmt/format.h>

#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "lab/report/spread.h"

namespace tracestep {
namespace {

// A start of the warm-up study: a row of `bench`, with all steps of its process.
struct Start {
  const ResultRow& row;
  std::vector<double> warmup, samples, steps;  // steps: all of the process in order

  explicit Start(const ResultRow& r)
      : row(r), warmup(r.warmup_ms()), samples(r.samples_ms()), steps(warmup) {
    steps.insert(steps.end(), samples.begin(), samples.end());
  }
};

Field<Start> text_of(const char* column) {
  return {text_column(column), [column](const Start& s) { return s.row.text(column); }};
}

Field<Start> ms_of(const char* column, const char* title, const char* description) {
  return {real_column(column, title, "ms", 3, description),
          [column](const Start& s) { return or_null(s.row.number(column)); }};
}

Field<Start> ms_at(const char* column, const char* title, const char* description,
                   std::vector<double> Start::*list, std::size_t index) {
  return {real_column(column, title, "ms", 3, description), [list, index](const Start& s) {
            const std::vector<double>& ms = s.*list;
            return index < ms.size() ? Json(ms[index]) : Json();
          }};
}

// Returns the row's key: that of its run, and the number of warm-up steps by its flag's name.
Json key_of(const Start& s) {
  const Json* run = s.row.parameters();
  if (run == nullptr) return {};
  Json out = *run;
  out["warmup_study"] = static_cast<std::int64_t>(s.warmup.size());
  return out;
}

Fields<Start> start_fields() {
  using S = const Start&;
  const auto count = [](const std::vector<double>& list) {
    return static_cast<std::int64_t>(list.size());
  };
  Fields<Start> out{};
  for (const Field<RunSpec>& axis : axis_columns()) {
    out.add(axis.column, [name = axis.column.name](S s) {
      if (name == "label") return Json(s.row.label());
      if (name == "cell") return key_of(s);
      const Json* cell = s.row.find(name);
      return cell == nullptr ? Json() : *cell;
    });
  }
  return out.add(Fields<Start>{
      text_of("status"),
      {int_column("warmup", "warm-up", "steps before the timed ones, in a process of its own"),
       [count](S s) { return count(s.warmup); }},
      {col::steps("timed"), [count](S s) { return count(s.samples); }},
      ms_of("mean_ms", "mean", "of the timed steps"),
      ms_of("std_ms", "std", "sample standard deviation"),
      ms_of("median_ms", "median", "of the timed steps"),
      ms_at("first_ms", "1st", "first timed step", &Start::samples, 0),
      ms_at("second_ms", "2nd", "second timed step", &Start::samples, 1),
      ms_at("start_ms", "very first", "first step of the process, warm-up or not", &Start::steps,
            0),
      {int_column("unsettled", "",
                  "leading steps, warm-up included, more than 10 % above the median of the "
                  "last half"),
       [](S s) { return when(s.steps.size() >= 2, unsettled_steps(s.steps)); }},
      {reals_column("steps_ms", "all steps of the process in order, warm-up first"),
       [](S s) { return list_of(s.steps); }}});
}

// Shows the effect of the first timed step on mean and deviation, in this row's own figures.
std::string worked(const ResultRow& row) {
  const std::vector<double> samples = row.samples_ms();
  if (samples.size() < 3) return {};
  const std::span<const double> rest = std::span(samples).subspan(1);
  return fmt::format(
      "{}, warm-up steps {}: with the first step {}, without it {} (means); the first is {:.2f} "
      "times the median of the others",
      row.label(), row.warmup_ms().size(),
      mean_and_deviation(mean_of(samples), sample_std_of(samples)),
      mean_and_deviation(mean_of(rest), sample_std_of(rest)), samples[0] / median_of(rest));
}

}  // namespace

int unsettled_steps(std::span<const double> steps_ms, double factor) {
  if (steps_ms.size() < 2) return 0;
  const double settled = median_of(steps_ms.last((steps_ms.size() + 1) / 2));
  int count = 0;
  for (double step : steps_ms) {
    if (step <= factor * settled) break;
    ++count;
  }
  return count;
}

Table warmup_table(std::span<const ResultRow> rows) {
  const std::vector<Start> starts(rows.begin(), rows.end());
  Table table = table_of("warmup", "What warm-up steps leave out, each row from a fresh start",
                         start_fields(), starts);
  for (const ResultRow& row : rows) {
    if (const std::string note = worked(row); !note.empty()) table.notes.push_back(note);
  }
  table.notes.push_back(
      "a first step also pays for memory that is touched for the first time, threads, libraries "
      "and choices of algorithms; later ones may still differ through clocks and caches");
  return table;
}

}  // namespace tracestep

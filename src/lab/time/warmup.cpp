#include "lab/time/tables.h"

#include <fmt/format.h>

#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

Column ms(std::string name, std::string title, std::string description) {
  return {.name = std::move(name),
          .title = std::move(title),
          .unit = "ms",
          .kind = ColumnKind::kReal,
          .digits = 3,
          .description = std::move(description)};
}

std::vector<Column> columns() {
  return {{.name = "size"},
          {.name = "context", .kind = ColumnKind::kInt},
          {.name = "mode"},
          {.name = "precision"},
          {.name = "ops"},
          {.name = "status"},
          {.name = "warmup",
           .title = "warm-up",
           .kind = ColumnKind::kInt,
           .description = "steps before the timed ones, in a process of its own"},
          {.name = "steps", .kind = ColumnKind::kInt, .description = "timed"},
          ms("mean_ms", "mean", "of the timed steps"),
          ms("std_ms", "std", "sample standard deviation"),
          ms("median_ms", "median", "of the timed steps"),
          ms("first_ms", "1st", "first timed step"),
          ms("second_ms", "2nd", "second timed step"),
          ms("start_ms", "very first", "first step of the process, warm-up or not"),
          {.name = "unsettled",
           .kind = ColumnKind::kInt,
           .description = "leading steps, warm-up included, more than 10 % above the median of the "
                          "last half"},
          {.name = "steps_ms",
           .kind = ColumnKind::kReals,
           .description = "all steps of the process in order, warm-up first"}};
}

Json number(const ResultRow& row, std::string_view column) {
  const auto value = row.number(column);
  return value ? Json(*value) : Json();
}

Json whole(const ResultRow& row, std::string_view column) {
  const auto value = row.number(column);
  return value ? Json(static_cast<std::int64_t>(*value)) : Json();
}

std::vector<double> steps_of(const ResultRow& row) {
  std::vector<double> out = row.numbers("warmup_ms");
  for (double x : row.numbers("samples_ms")) out.push_back(x);
  return out;
}

// What the first timed step does to mean and deviation, in this row's own figures.
std::string worked(const ResultRow& row) {
  const std::vector<double> samples = row.numbers("samples_ms");
  if (samples.size() < 3) return {};
  const std::span<const double> rest = std::span(samples).subspan(1);
  return fmt::format(
      "{} after {} warm-up steps: with the first step {:.2f} ± {:.2f} ms, without it {:.2f} ± "
      "{:.2f} ms; the first is {:.2f} times the median of the others",
      row.label(), row.numbers("warmup_ms").size(), mean_of(samples), sample_std_of(samples),
      mean_of(rest), sample_std_of(rest), samples[0] / median_of(rest));
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
  Table table{.name = "warmup",
              .title = "What warm-up steps leave out, each row from a fresh start",
              .columns = columns()};
  for (const ResultRow& row : rows) {
    const std::vector<double> samples = row.numbers("samples_ms"), steps = steps_of(row);
    const auto at = [](const std::vector<double>& list, std::size_t i) {
      return i < list.size() ? Json(list[i]) : Json();
    };
    Json all = Json::array();
    for (double step : steps) all.push_back(step);
    table.add_row({row.text("size"), whole(row, "context"), row.text("mode"), row.text("precision"),
                   row.text("ops"), row.text("status"),
                   static_cast<std::int64_t>(row.numbers("warmup_ms").size()),
                   static_cast<std::int64_t>(samples.size()), number(row, "mean_ms"),
                   number(row, "std_ms"), number(row, "median_ms"), at(samples, 0), at(samples, 1),
                   at(steps, 0), steps.size() < 2 ? Json() : Json(unsettled_steps(steps)),
                   std::move(all)});
    if (const std::string note = worked(row); !note.empty()) table.notes.push_back(note);
  }
  table.notes.push_back(
      "a first step also pays for memory that is touched for the first time, threads, libraries "
      "and choices of algorithms; later ones may still differ through clocks and caches");
  return table;
}

}  // namespace tracestep

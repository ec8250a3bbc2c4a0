// Parts of the study that time whole steps: every mode of some sizes, growing contexts, warm-up.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/units.h"
#include "lab/measure/comparison.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "lab/study/study.h"
#include "lab/time/tables.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

double median_ms(const CellResult& cell) {
  return median_of(cell.samples_ms);
}

// A cell in primitive ops, the same cell in fused ops, and the comparison of their times.
struct PairOfCells {
  const CellResult &primitive, &fused;
  Comparison comparison;
};

const CellResult* partner_of(const CellResult& cell, const std::vector<CellResult>& cells,
                             Granularity ops) {
  for (const CellResult& other : cells) {
    const RunSpec& step = other.spec.step;
    if (step.ops == ops && same_but(cell.spec.step, step, {"ops"}) && other.status == Status::kOk) {
      return &other;
    }
  }
  return nullptr;
}

Fields<PairOfCells> granularity_fields() {
  using P = const PairOfCells&;
  Fields<PairOfCells> out = {
      {text_column("size"), [](P p) { return p.primitive.spec.step.model.name; }},
      {data_only(int_column("vocab")), [](P p) { return p.primitive.spec.step.model.vocab; }},
      {text_column("mode"), [](P p) { return name_of(p.primitive.spec.step.mode); }},
      {real_column("primitive_ms", "primitive", "ms", 1),
       [](P p) { return median_ms(p.primitive); }},
      {real_column("fused_ms", "fused", "ms", 1), [](P p) { return median_ms(p.fused); }},
      {timed(real_column("ratio", "ratio", "", 3, "fused over primitive, of medians")),
       [](P p) { return p.comparison.ratio; }},
      {timed(real_column(
           "low", "from", "", 3,
           "interval of the ratio, by the rounds' ratios; of fewer than six their range")),
       [](P p) { return finite_or_null(p.comparison.low); }},
      {timed(real_column("high", "to", "", 3)),
       [](P p) { return finite_or_null(p.comparison.high); }},
      {timed(real_column("p", "p", "", 3, "two-sided: Wilcoxon of rounds, else Mann-Whitney")),
       [](P p) { return p.comparison.p; }},
      {timed(text_column("change", "fused is",
                         "faster or slower, slightly where that is within 5 %, same within 5 %, "
                         "unclear, or too few samples to say")),
       [](P p) { return fine_words_of(p.comparison); }},
      {bytes_column("primitive_peak_bytes", "primitive peak"),
       [](P p) { return p.primitive.peak_bytes; }},
      {bytes_column("fused_peak_bytes", "fused peak"), [](P p) { return p.fused.peak_bytes; }}};
  out.add(data_only(col::label), [](P p) { return label_of(p.fused.spec.step); });
  out.add(data_only(structured_column("cell", "all parameters of both")), [](P p) {
    return Json::Array{key_of(p.primitive.spec.step), key_of(p.fused.spec.step)};
  });
  Column verdict = verdict_column();
  verdict.description = "of the validity checker: the worse of the two rows' verdicts";
  return out.add(std::move(verdict), [](P) { return Json(); });
}

Table granularity_table(const std::vector<CellResult>& cells) {
  std::vector<PairOfCells> pairs;
  for (const CellResult& cell : cells) {
    if (cell.spec.step.ops != Granularity::kPrimitive || cell.status != Status::kOk) continue;
    const CellResult* fused = partner_of(cell, cells, Granularity::kFused);
    if (fused == nullptr) continue;
    pairs.push_back(
        {cell, *fused, compare_cells(timed_samples(cell), timed_samples(*fused), 0.02)});
  }
  Table out = table_of("granularity", "Fused against primitive ops", granularity_fields(), pairs);
  show_unusual(out);
  return out;
}

// Returns a section with each step's time by component and by kernel class, from executors' spans.
StudySection component_section(const std::vector<CellResult>& cells) {
  StudySection out = section("components", {});
  for (const CellResult& cell : cells) {
    if (cell.spec.step.mode != Mode::kStep || cell.status != Status::kOk) continue;
    const std::string label = label_of(cell.spec.step);
    for (Table table : {time_by_component(cell), time_by_class(cell)}) {
      table.title = fmt::format(
          "{}: {}, one step",
          table.columns[0].name == "class" ? "By kind of kernel" : "By component", label);
      table.name += "@" + label;
      out.tables.push_back(std::move(table));
    }
  }
  return out;
}

// Returns a table of cells that shows only what questions about time ask for (table "cells" shows
// the rest), with the interval by the name that stored studies give it.
Table time_table(std::span<const CellResult> cells, std::string name, std::string title) {
  static const std::set<std::string_view> shown = {
      "status",       "median_ms", "min_ms",     "device_span_ms", "device_busy_ms",
      "tokens_per_s", "tflops",    "peak_bytes", "launches",       "verdict"};
  Table out = cell_table(cells, std::move(name), std::move(title));
  for (Column& column : out.columns) {
    if (column.role != ColumnRole::kKey && !shown.contains(column.name)) column.data_only = true;
  }
  for (const auto& [column, stored] :
       {std::pair{"interval_low_ms", "low_ms"}, {"interval_high_ms", "high_ms"}}) {
    out.columns[out.index_of(column).value()].name = stored;
  }
  show_unusual(out);
  return out;
}

}  // namespace

Table cell_table(std::span<const CellResult> cells, std::string name, std::string title) {
  Table table{.name = std::move(name), .title = std::move(title), .columns = cell_columns()};
  const std::vector<Column> key = key_columns().columns();
  table.columns.insert(table.columns.end(), key.begin(), key.end());
  table.columns.push_back(verdict_column());  // filled in by the review
  for (const CellResult& cell : cells) {
    std::vector<Json> row = cell_row(cell);
    for (Json& value : key_columns().row(cell.spec.step)) row.push_back(std::move(value));
    row.emplace_back();
    table.add_row(std::move(row));
  }
  return table;
}

void add_step_sections(StudyContext& context) {
  const std::vector<CellResult> cells = context.measured(runs_in(context, "time"));
  context.sections.push_back(section("time", {time_table(cells, "time", "Time of a step"),
                                              granularity_table(cells), cell_table(cells)}));
  context.sections.push_back(component_section(cells));
  context.sections.push_back(section(
      "scaling",
      {time_table(context.measured(runs_in(context, "scaling")), "scaling", "Time per context")}));
}

// Measures warm-up: starts with different numbers of warm-up steps, each in a new process.
void warm_up_part(StudyContext& context) {
  constexpr int kSteps = 5;
  const RunSpec step =
      context.here({.model = context.sizes.models.front(), .shape = context.sizes.shape});
  constexpr std::size_t kLeast = 2;  // a start without warm-up, and one with it
  const double step_seconds = context.seconds_of(step);
  std::vector<CellSpec> specs;
  double steps = 0;
  for (const std::int64_t warmup : context.sizes.warmups) {
    steps += static_cast<double>(warmup + kSteps + 1);
    const bool is_needed = specs.size() < kLeast && context.seconds_left() > 0;
    const bool fits =
        context.driver().is_child() || is_needed || context.has_time_for(steps * step_seconds);
    if (!fits) break;
    specs.push_back(
        {step, {.warmup = static_cast<int>(warmup), .steps = kSteps, .recorded_steps = 1}});
  }
  if (specs.empty()) {
    ++context.left_out;
    return;
  }
  context.announce("warm-up: fresh processes");
  std::vector<CellResult> cells;
  for (auto& cell : context.driver().visit_cells<CellResult>(
           context.stage_of("warmup"), specs, {.least = 1, .most = 1},
           [&](const CellSpec&spec, const auto&) {
             return visit(context.machine.make_device, spec, context.driver().stop_signal());
           },
           true)) {
    if (cell) cells.push_back(*std::move(cell));
  }
  if (cells.empty()) return;
  Table table = warmup_table(rows_of(cell_table(cells), context.machine.environment));
  Column verdict = verdict_column();  // filled in by the review
  verdict.description = "of the validity checker: that of the same step, timed in rounds";
  table.columns.push_back(std::move(verdict));
  for (std::vector<Json>& row : table.rows) row.emplace_back();
  context.sections.push_back(section("warmup", {std::move(table)}));
}

}  // namespace tracestep

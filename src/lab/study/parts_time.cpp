// Parts of the study that time whole steps: every mode of some sizes, growing contexts, warm-up.
#include <algorithm>
#include <array>
#include <map>

#include "base/units.h"
#include "lab/measure/comparison.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/study/study.h"
#include "lab/time/tables.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

double median_ms(const CellResult& cell) {
  return median_of(cell.samples_ms);
}

// A timed cell, and the one that it is compared with.
struct PairOfCells {
  const CellResult &primitive, &fused;
  Comparison comparison;
};

// A field that only cells which ran have.
template <class Get>
Field<CellResult> ok_field(Column column, Get get) {
  return {std::move(column), [get](const CellResult& cell) {
            return cell.status == Status::kOk ? Json(get(cell)) : Json();
          }};
}

Fields<CellResult> time_fields() {
  using C = const CellResult&;
  const auto ms = [](const char* column, const char* text, const char* doc = "") {
    return real_column(column, text, "ms", -1, doc);
  };
  Fields<CellResult> out{};
  out.add(axis_columns(), [](C c) { return &c.spec.step; });
  out.add(data_only(int_column("batch")), [](C c) { return c.spec.step.shape.batch; });
  return out.add(Fields<CellResult>{
      {text_column("status"), [](C c) { return name_of(c.status); }},
      ok_field(ms("median_ms", "median", "wall time of a whole step"),
               [](C c) { return median_ms(c); }),
      ok_field(data_only(ms("low_ms", "from",
                            "95 % interval of the median, by the visits' medians; of fewer "
                            "than six their range")),
               [](C c) { return timed_samples(c).interval.low; }),
      ok_field(data_only(ms("high_ms", "to")), [](C c) { return timed_samples(c).interval.high; }),
      ok_field(ms("min_ms", "min"), [](C c) { return min_of(c.samples_ms); }),
      ok_field(ms("span_ms", "span", "first kernel's start to the last one's end"),
               [](C c) { return c.device_span_ms; }),
      ok_field(ms("busy_ms", "busy, recorded",
                  "kernels alone, in a separate step: events around each may add to it, so it can "
                  "exceed the span"),
               [](C c) { return c.device_busy_ms; }),
      ok_field(reals_column("samples_ms", "every timed step"),
               [](C c) { return list_of(c.samples_ms); }),
      ok_field(visits_field("samples_ms"), [](C c) { return visit_counts(timed_samples(c)); }),
      ok_field(int_column("steps", "n", "timed"), [](C c) { return std::ssize(c.samples_ms); }),
      ok_field(real_column("tokens_per_s", "tokens/s", "", 0),
               [](C c) {
                 const BatchShape& shape = c.spec.step.shape;
                 return static_cast<double>(shape.batch * shape.context) / median_ms(c) * 1e3;
               }),
      ok_field(real_column("gflops", "GFLOP/s", "", 0, "matrix products only"),
               [](C c) { return static_cast<double>(c.flops) / median_ms(c) * 1e-6; }),
      ok_field(bytes_column("peak_bytes", "peak", "most memory alive at once, as requested"),
               [](C c) { return c.peak_bytes; }),
      ok_field(int_column("launches", "launching nodes",
                          "nodes that launch: each runs one kernel or more"),
               [](C c) { return c.launches; }),
      ok_field(data_only(int_column("flops", {}, "of matrix products")),
               [](C c) { return c.flops; }),
      {verdict_column(), [](C) { return Json(); }}});
}

Table time_table(std::string name, std::string title, const std::vector<CellResult>& cells) {
  Table out = table_of(std::move(name), std::move(title), time_fields(), cells);
  show_unusual(out);
  return out;
}

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
  out.add(data_only(text_column("label")), [](P p) { return label_of(p.fused.spec.step); });
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

// A whole step of each size and granularity, taken apart by the executor's own spans.
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

}  // namespace

Table cell_table(std::span<const CellResult> cells) {
  Table table{.name = "cells", .title = "Every measured cell", .columns = cell_columns()};
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
  context.sections.push_back(section("time", {time_table("time", "Time of a step", cells),
                                              granularity_table(cells), cell_table(cells)}));
  context.sections.push_back(component_section(cells));
  context.sections.push_back(section(
      "scaling",
      {time_table("scaling", "Time per context", context.measured(runs_in(context, "scaling")))}));
}

void warm_up_part(StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  const RunSpec step{.model = sizes.models.front(), .shape = sizes.shape};
  const double each = context.seconds_of(step);
  // Each process runs five timed steps and one recorded one.
  double seconds = 0;
  for (std::int64_t warmup : sizes.warmups) seconds += each * static_cast<double>(warmup + 6);
  if (!context.machine.warm_up || !context.has_time_for(seconds)) return;
  context.announce("warm-up: fresh processes");
  context.sections.push_back(section("warmup", {context.machine.warm_up(step, sizes.warmups)}));
}

}  // namespace tracestep

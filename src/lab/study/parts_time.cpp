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

double median_ms(const StudyCell& cell) {
  return median_of(cell.result.samples_ms);
}

// How many forward passes a step of this mode is worth.
double weight_of(Mode mode) {
  return mode == Mode::kStep ? 3.5 : mode == Mode::kForwardBackward ? 3.0 : 1.0;
}

// The expected seconds of a step: from the last cell of its model, or scaled by work from another
// model's; 0: unknown.
double guess_seconds(const std::vector<StudyCell>& cells, const RunSpec& step) {
  const auto work = [](const RunSpec& s) {
    return weight_of(s.mode) * static_cast<double>(parameter_formula(s.model)) *
           static_cast<double>(s.shape.batch * s.shape.context);
  };
  double same_mode = 0, same_model = 0, other = 0;
  for (const StudyCell& cell : cells) {
    const RunSpec& s = cell.spec.step;
    if (cell.result.status != Status::kOk) continue;
    const double guess = median_ms(cell) * 1e-3 * work(step) / work(s);
    const bool is_model = s.model.name == step.model.name;
    (is_model && s.mode == step.mode ? same_mode : is_model ? same_model : other) = guess;
  }
  return same_mode > 0 ? same_mode : same_model > 0 ? same_model : other;
}

// Whole steps are taken apart by component, which wants several steps that agree.
int recorded_steps(Mode mode) {
  return mode == Mode::kStep ? 3 : 1;
}

void measure_steps(StudyContext& context, const RunSpec& step, Protocol protocol,
                   std::vector<StudyCell>& out) {
  CellSpec spec;
  spec.step = context.here(step);
  spec.protocol = protocol;
  spec.protocol.recorded_steps = recorded_steps(step.mode);
  out.push_back({spec, measure_cell(context.machine.make_device, spec)});
}

// Measures as many steps as a share of the time allows; nothing when there is no time for a few.
void measure(StudyContext& context, const RunSpec& step, double share,
             std::vector<StudyCell>& out) {
  constexpr int kLeast = 3;  // timed steps
  const int beside = 1 + recorded_steps(step.mode);
  const double guess = guess_seconds(out, step);
  if (!context.has_time_for(guess * (kLeast + beside))) return;
  const double room = share * context.seconds_left();
  context.announce(fmt::format("timing {} at context {}: {}, {}", step.model.name,
                               step.shape.context, name_of(step.mode), name_of(step.ops)));
  double steps = context.sizes.steps;
  if (guess > 0) steps = std::clamp<double>(room / guess - beside, kLeast, steps);
  const Protocol protocol{.warmup = 1, .steps = static_cast<int>(steps)};
  measure_steps(context, step, context.until_steady(protocol, guess), out);
}

void time_model(StudyContext& context, const ModelConfig& model, double share) {
  // One step first, which is not a sample, to learn how long the others will take.
  std::vector<StudyCell> known = context.cells;
  const RunSpec first{.model = model, .shape = context.sizes.shape, .mode = Mode::kForward};
  const double guess = guess_seconds(known, first);
  if (context.seconds_left() > 2 * guess) {
    measure_steps(context, first, {.warmup = 0, .steps = 1}, known);
  }
  for (Mode mode : {Mode::kForward, Mode::kForwardBackward, Mode::kStep, Mode::kInference}) {
    for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
      const std::size_t before = known.size();
      measure(context, {.model = model, .shape = context.sizes.shape, .mode = mode, .ops = ops},
              share, known);
      if (known.size() > before) context.cells.push_back(known.back());
    }
  }
}

// A timed cell, and the one that it is compared with.
struct PairOfCells {
  const StudyCell &primitive, &fused;
  Comparison comparison;
};

// Of cells that ran.
template <class Get>
Field<StudyCell> ok_field(Column column, Get get) {
  return {std::move(column), [get](const StudyCell& cell) {
            return cell.result.status == Status::kOk ? Json(get(cell)) : Json();
          }};
}

Fields<StudyCell> time_fields() {
  using C = const StudyCell&;
  const auto ms = [](const char* column, const char* text, const char* doc = "") {
    return real_column(column, text, "ms", -1, doc);
  };
  Fields<StudyCell> out{};
  out.add(axis_columns(), [](C c) { return &c.spec.step; });
  out.add(data_only(int_column("batch")), [](C c) { return c.spec.step.shape.batch; });
  return out.add(Fields<StudyCell>{
      {text_column("status"), [](C c) { return name_of(c.result.status); }},
      ok_field(ms("median_ms", "median", "wall time of a whole step"),
               [](C c) { return median_ms(c); }),
      ok_field(data_only(ms("low_ms", "from",
                            "95 % interval of the median; with fewer than six samples "
                            "their range")),
               [](C c) { return median_interval(c.result.samples_ms).low; }),
      ok_field(data_only(ms("high_ms", "to")),
               [](C c) { return median_interval(c.result.samples_ms).high; }),
      ok_field(ms("min_ms", "min"), [](C c) { return min_of(c.result.samples_ms); }),
      ok_field(ms("span_ms", "span", "first kernel's start to the last one's end"),
               [](C c) { return c.result.device_span_ms; }),
      ok_field(ms("busy_ms", "busy, recorded",
                  "kernels alone, in a separate step: events around each may add to it, so it can "
                  "exceed the span"),
               [](C c) { return c.result.device_busy_ms; }),
      ok_field(reals_column("samples_ms", "every timed step"),
               [](C c) { return list_of(c.result.samples_ms); }),
      ok_field(int_column("steps", "n", "timed"),
               [](C c) { return std::ssize(c.result.samples_ms); }),
      ok_field(real_column("tokens_per_s", "tokens/s", "", 0),
               [](C c) {
                 const BatchShape& shape = c.spec.step.shape;
                 return static_cast<double>(shape.batch * shape.context) / median_ms(c) * 1e3;
               }),
      ok_field(real_column("gflops", "GFLOP/s", "", 0, "matrix products only"),
               [](C c) { return static_cast<double>(c.result.flops) / median_ms(c) * 1e-6; }),
      ok_field(bytes_column("peak_bytes", "peak", "most memory alive at once, as requested"),
               [](C c) { return c.result.peak_bytes; }),
      ok_field(int_column("launches", "launching nodes",
                          "nodes that launch: each runs one kernel or more"),
               [](C c) { return c.result.launches; }),
      ok_field(data_only(int_column("flops", {}, "of matrix products")),
               [](C c) { return c.result.flops; })});
}

// The columns above, as the interval of a chart's bars and points.
Json median_range() {
  return Json::Object{{"median_ms", Json::Array{"low_ms", "high_ms"}}};
}

// `is_headline`: on the first screen, with less of it: fused kernels only.
Chart time_chart(bool is_headline) {
  Chart out{
      .kind = "bars",
      .title = "Median time by mode",
      .table = "time",
      .options = Json::Object{{"values", Json::Array{"median_ms"}}, {"range", median_range()}},
      .is_headline = is_headline};
  if (!is_headline) return out;
  out.title += ", fused kernels";
  out.options["where"] = Json::Object{{"ops", "fused"}};
  return out;
}

Table time_table(std::string name, std::string title, const std::vector<StudyCell>& cells) {
  Table out = table_of(std::move(name), std::move(title), time_fields(), cells);
  show_unusual(out);
  return out;
}

const StudyCell* partner_of(const StudyCell& cell, const std::vector<StudyCell>& cells,
                            Granularity ops) {
  for (const StudyCell& other : cells) {
    const RunSpec& step = other.spec.step;
    if (step.ops == ops && same_but(cell.spec.step, step, {"ops"}) &&
        other.result.status == Status::kOk) {
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
      {timed(real_column("low", "from", "", 3, "95 % interval of the ratio")),
       [](P p) { return finite_or_null(p.comparison.low); }},
      {timed(real_column("high", "to", "", 3)),
       [](P p) { return finite_or_null(p.comparison.high); }},
      {timed(real_column("p", "p", "", 3, "Mann-Whitney, two-sided")),
       [](P p) { return p.comparison.p; }},
      {timed(text_column("change", "fused is",
                         "faster or slower, slightly where that is within 2 %, same within 2 %, "
                         "unclear, or too few samples to say")),
       [](P p) { return fine_words_of(p.comparison); }},
      {bytes_column("primitive_peak_bytes", "primitive peak"),
       [](P p) { return p.primitive.result.peak_bytes; }},
      {bytes_column("fused_peak_bytes", "fused peak"),
       [](P p) { return p.fused.result.peak_bytes; }}};
  out.add(data_only(text_column("label")), [](P p) { return label_of(p.fused.spec.step); });
  out.add(data_only(structured_column("cell", "all parameters of both")), [](P p) {
    return Json::Array{key_of(p.primitive.spec.step), key_of(p.fused.spec.step)};
  });
  Column verdict = verdict_column();
  verdict.description = "of the validity checker: the worse of the two rows' verdicts";
  return out.add(std::move(verdict), [](P) { return Json(); });
}

Table granularity_table(const std::vector<StudyCell>& cells) {
  std::vector<PairOfCells> pairs;
  for (const StudyCell& cell : cells) {
    if (cell.spec.step.ops != Granularity::kPrimitive || cell.result.status != Status::kOk)
      continue;
    const StudyCell* fused = partner_of(cell, cells, Granularity::kFused);
    if (fused == nullptr) continue;
    pairs.push_back(
        {cell, *fused, compare_samples(cell.result.samples_ms, fused->result.samples_ms, 0.02)});
  }
  Table out = table_of("granularity", "Fused against primitive ops", granularity_fields(), pairs);
  show_unusual(out);
  return out;
}

// A whole step of each size and granularity, taken apart by the executor's own spans.
StudySection component_section(const std::vector<StudyCell>& cells) {
  StudySection out{
      .id = "components",
      .title = "Time per component and per kind of kernel",
      .reading =
          "Each kernel knows which part of the model asked for it and whether it belongs to "
          "forward, backward or the optimizer; layers are added up. Kernels' times are of a "
          "recorded step, the total is the span of the timed ones, and the row gaps is the "
          "rest of it, where there is any. On a GPU these times are of events and hold what a "
          "kernel adds to a row of kernels, handing over to the next one included; the tables of "
          "kernels are of the device's profiler, which has kernels alone. Matrix products "
          "do nearly all the arithmetic; "
          "everything else mostly moves bytes, so its speed is read as GB/s."};
  for (const StudyCell& cell : cells) {
    if (cell.spec.step.mode != Mode::kStep || cell.result.status != Status::kOk) continue;
    const std::string label = label_of(cell.spec.step);
    for (Table table : {time_by_component(cell.result), time_by_class(cell.result)}) {
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

Table cell_table(const std::vector<StudyCell>& cells) {
  Table table{.name = "cells", .title = "Every measured cell", .columns = cell_columns()};
  const std::vector<Column> key = key_columns().columns();
  table.columns.insert(table.columns.end(), key.begin(), key.end());
  for (const StudyCell& cell : cells) {
    std::vector<Json> row = cell_row(cell.result);
    for (Json& value : key_columns().row(cell.spec.step)) row.push_back(std::move(value));
    table.add_row(std::move(row));
  }
  return table;
}

void first_cell_part(StudyContext& context) {
  time_model(context, context.sizes.models.front(), 0.15);
}

void other_cell_part(StudyContext& context) {
  const auto& models = context.sizes.models;
  for (std::size_t i = 1; i < models.size(); ++i) time_model(context, models[i], 0.15);
}

void add_cell_sections(StudyContext& context) {
  StudySection out{
      .id = "time",
      .title = "Time of a step",
      .reading =
          "Every row is one way to run the model: inference keeps nothing for backward, "
          "forward keeps what backward would need, forward-backward computes gradients, "
          "step also updates the weights (AdamW). primitive runs every composite in parts: "
          "softmax, norms, RoPE, SwiGLU, the loss, and AdamW in kernels of its own for each "
          "tensor, where frameworks update many tensors in one; fused runs each as one kernel. "
          "Where kernels were busy for longer when recorded than the span, recording is in their "
          "times: on a GPU a part of the events' own time may be in that of each kernel.",
      .tables = {time_table("time", "Time of a step", context.cells),
                 granularity_table(context.cells), cell_table(context.cells)},
      .shown = 2,
      .charts = {time_chart(true), time_chart(false)}};
  context.sections.push_back(std::move(out));
  context.sections.push_back(component_section(context.cells));
}

void scaling_part(StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  for (std::int64_t tokens : sizes.contexts) {
    for (Mode mode : {Mode::kInference, Mode::kStep}) {
      const BatchShape shape{.batch = sizes.shape.batch, .context = tokens};
      measure(context, {.model = sizes.scaled, .shape = shape, .mode = mode}, 0.2, context.scaling);
    }
  }
  Table table = time_table("scaling", "Time per context", context.scaling);
  context.sections.push_back(
      {.id = "scaling",
       .title = "Time per context",
       .reading = "The same model with longer sequences: linear layers grow with T, attention "
                  "with T².",
       .tables = {std::move(table)},
       .charts = {{.kind = "lines",
                   .title = "Median time of inference and of a step (logarithmic axes)",
                   .table = "scaling",
                   .options = Json::Object{{"x", "context"},
                                           {"y", Json::Array{"median_ms"}},
                                           {"series", Json::Array{"size", "mode"}},
                                           {"range", median_range()},
                                           {"log", "xy"}}}}});
}

void warm_up_part(StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  const RunSpec step{.model = preset("tiny"), .shape = sizes.shape};
  const double each = guess_seconds(context.cells, step);
  // Five timed steps and one recorded one in each process.
  double seconds = 0;
  for (std::int64_t warmup : sizes.warmups) seconds += each * static_cast<double>(warmup + 6);
  if (!context.machine.warm_up || !context.has_time_for(seconds)) return;
  context.announce("warm-up: fresh processes");
  context.sections.push_back(
      {.id = "warmup",
       .title = "Warm-up",
       .reading = "Each row is a process of its own with the same number of timed steps, so that "
                  "means and deviations can be compared.",
       .tables = {context.machine.warm_up(step, sizes.warmups)},
       .charts = {{.kind = "lines",
                   .title = "Every step of each process, warm-up first",
                   .table = "warmup",
                   .options = Json::Object{{"list", "steps_ms"},
                                           {"x_title", "step of the process"},
                                           {"series", Json::Array{"warmup"}}}}}});
}

}  // namespace tracestep

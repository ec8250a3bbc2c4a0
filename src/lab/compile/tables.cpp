#include "lab/compile/tables.h"

#include <algorithm>

#include "lab/attention/tables.h"
#include "lab/measure/comparison.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "passes/pipeline.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr double kMargin = 0.02;  // of compare_cells()

// Times beside those that they are compared with; null: there are none.
struct Against {
  Comparison comparison;

  static std::optional<Against> of(const std::optional<TimedSamples>& base,
                                   const TimedSamples& samples) {
    if (!base || base->ms.empty() || samples.ms.empty()) return std::nullopt;
    return Against{compare_cells(*base, samples, kMargin)};
  }
  static Json inverse(double ratio) { return finite_or_null(1.0 / ratio); }
};

// `prefix`: of the columns' names; `what`: what the rows are compared with.
Fields<Against> against_fields(const std::string& prefix, const std::string& title,
                               const std::string& what) {
  using A = const Against&;
  const auto ratio = [&](const char* name, std::string text, std::string doc) {
    return timed(real_column(prefix + name, std::move(text), "x", 3, std::move(doc)));
  };
  return {
      {ratio("_speedup", title, "median of " + what + " over this one"),
       [](A a) { return Against::inverse(a.comparison.ratio); }},
      {data_only(ratio("_low", "from", "95 % interval of that ratio")),
       [](A a) { return Against::inverse(a.comparison.high); }},
      {data_only(ratio("_high", "to", "")), [](A a) { return Against::inverse(a.comparison.low); }},
      {timed(text_column(
           prefix + "_verdict", "is",
           "faster or slower beyond chance, slightly where that is within 2 % (5 % of cells "
           "measured in rounds), same within it, unclear, or too few samples to say")),
       [](A a) { return fine_words_of(a.comparison); }}};
}

// The time of one list of samples.
Fields<TimedSamples> time_fields(const std::string& prefix, const std::string& title) {
  using S = const TimedSamples&;
  const auto ms = [&](const char* name, std::string text, const char* doc) {
    return real_column(prefix + name, std::move(text), "ms", 3, doc);
  };
  const auto end = [](S s, double Interval::*member) {
    return when(s.has_interval(), s.interval.*member);
  };
  return {{as_samples(reals_column(prefix + "samples_ms", "wall time of each timed step")),
           [](S s) { return list_of(s.ms); }},
          {visits_field(prefix + "samples_ms"), visit_counts},
          {ms("median_ms", title, "of the samples"),
           [](S s) { return finite_or_null(s.summary.median); }},
          {ms("interval_low_ms", "95 % from",
              "95 % interval of the median; six samples, or visits of rounds, at least"),
           [end](S s) { return end(s, &Interval::low); }},
          {ms("interval_high_ms", "to", ""), [end](S s) { return end(s, &Interval::high); }}};
}

// Shown to people where the device counts energy.
Column energy_column() {
  Column out = real_column("energy_j", "energy", "J", kTwoDigits,
                           "of the whole device, for one step, by its own coarse counter");
  out.if_varies = true;
  return out;
}

Fields<CompileCell> byte_fields() {
  using C = const CompileCell&;
  const auto if_ok = [](C c, std::int64_t value) {
    return when(c.result.status == Status::kOk, value);
  };
  return {{as_exact(int_column("launches", "launching nodes",
                               "nodes of a step that launch: each runs one kernel or more")),
           [if_ok](C c) { return if_ok(c, c.result.launches); }},
          {data_only(int_column("kernels", "",
                                "kernels, copies and fills of the graph that steps replayed; empty "
                                "where they were issued launch by launch, and not counted")),
           [](C c) { return or_null(c.result.kernels); }},
          {as_exact(bytes_column(
               "moved_bytes", "moved, modelled",
               "each kernel reads its distinct operands once and writes its results once")),
           [if_ok](C c) { return if_ok(c, moved_bytes(c.result.program)); }},
          {as_exact(
               bytes_column("peak_bytes", "peak", "requested bytes at the peak, by the allocator")),
           [if_ok](C c) { return if_ok(c, c.result.peak_bytes); }},
          {as_exact(bytes_column("arena_bytes", "arena",
                                 "of that; empty: buffers come from the allocator")),
           [](C c) { return or_null(c.result.arena_bytes); }},
          {as_exact(bytes_column("saved_bytes", "saved",
                                 "forward values kept for backward, by the program")),
           [if_ok](C c) { return if_ok(c, c.result.saved_bytes); }},
          {energy_column(), [](C c) { return or_null(energy_per_step_j(c.result)); }}};
}

Fields<StartTimes> start_fields() {
  return {{timed(real_column("first_start_ms", "first start", "ms", 1,
                             "until the first step is done, no compiled kernels kept from before"),
                 Timing::kSingle),
           &StartTimes::first_ms},
          {timed(real_column("second_start_ms", "second", "ms", 1,
                             "the same with those that the first kept, if the device compiles any"),
                 Timing::kSingle),
           &StartTimes::second_ms}};
}

constexpr const char* kIsNote =
    "is: faster or slower beyond chance, with an interval that passes 2 %, or slightly so where "
    "all "
    "of it lies within 2 %; same: within 2 %, and not apart beyond chance; else unclear";

// Below tables that show energy.
void note_energy(Table& table) {
  const std::size_t at = table.index_of("energy_j").value();
  if (!std::ranges::any_of(table.rows, [at](const auto& row) { return !row[at].is_null(); }))
    return;
  table.notes.emplace_back(
      "energy: by the device's counter, which moves in steps of some tens of milliseconds, so that "
      "even two digits are rough; none where it says more than the power limit allows");
}

// Adds the columns that every measured cell has; `cell` gives it for a row.
template <class Row, class CellOf>
void add_measured(Fields<Row>& fields, CellOf cell) {
  fields.add(text_column("status", "", "ok or oom"),
             [cell](const Row& row) { return name_of(cell(row).result.status); });
  fields.add(time_fields("", "median"), [](const Row& row) { return &row.samples; });
}

template <class Row, class CellOf>
void add_bytes(Fields<Row>& fields, CellOf cell) {
  fields.add(byte_fields(), [cell](const Row& row) { return &cell(row); });
  fields.add(data_only(text_column("detail", "", "why the status is not ok")),
             [cell](const Row& row) { return or_null(cell(row).result.detail); });
}

// The validity checker's column, filled in when all rows are there.
template <class Row>
void add_verdict(Fields<Row>& fields) {
  fields.add(verdict_column(), [](const Row&) { return Json(); });
}

// What the checker reads of a cell.
ResultRow judged(const CompileCell& cell) {
  return ResultRow::of(cell_columns(), cell_row(cell.result), Json::object());
}

// --- whole steps ------------------------------------------------------------------------------

struct WayRow {
  const CompileCell& cell;
  TimedSamples samples;
  std::optional<Against> against;
};

// The first cell of the same step that ran, in whatever way.
const CompileCell* base_of(std::span<const CompileCell> cells, const CompileCell& cell) {
  const auto found = std::ranges::find_if(cells, [&](const CompileCell& other) {
    return other.result.status == Status::kOk &&
           same_but(other.result.spec.step, cell.result.spec.step, fields_that(&RunField::is_form));
  });
  return found == cells.end() ? nullptr : &*found;
}

Fields<WayRow> way_fields() {
  Fields<WayRow> out{};
  const auto cell = [](const WayRow& row) -> const CompileCell& { return row.cell; };
  out.add(program_columns(), [](const WayRow& row) { return &row.cell.result.spec.step; });
  out.add(as_key(text_column("device")), [](const WayRow& row) { return row.cell.result.device; });
  add_measured(out, cell);
  out.add(against_fields("base", "against first", "the first row of the same step"),
          [](const WayRow& row) { return row.against ? &*row.against : nullptr; });
  add_bytes(out, cell);
  out.add(start_fields(),
          [](const WayRow& row) { return row.cell.start ? &*row.cell.start : nullptr; });
  add_verdict(out);
  return out;
}

// --- attention --------------------------------------------------------------------------------

struct AttentionWay {
  struct Part {
    TimedSamples samples;
    std::optional<Against> against;
  };
  const AttentionResult& r;
  Part forward, backward, whole;
};

bool is_same_attention(const AttentionSpec& a, const AttentionSpec& b) {
  return a.width == b.width && a.causal == b.causal && a.run.shape.batch == b.run.shape.batch &&
         a.run.shape.context == b.run.shape.context && a.run.precision == b.run.precision;
}

// Softmax in parts is what primitive ops have.
Granularity ops_of(const AttentionSpec& spec) {
  return spec.saved.exp ? Granularity::kPrimitive : Granularity::kFused;
}

AttentionWay attention_way(std::span<const AttentionResult> results, const AttentionResult& r) {
  const auto base = std::ranges::find_if(results, [&](const AttentionResult& other) {
    return other.status == Status::kOk && is_same_attention(other.spec, r.spec);
  });
  const bool has_base = base != results.end() && &*base != &r;
  const auto part = [&](AttentionPart AttentionResult::*member) {
    const auto samples = [member](const AttentionResult& of) {
      return TimedSamples((of.*member).samples_ms, of.visits, true);
    };
    const std::optional<TimedSamples> of_base =
        has_base ? std::optional(samples(*base)) : std::nullopt;
    return AttentionWay::Part{samples(r), Against::of(of_base, samples(r))};
  };
  return {r, part(&AttentionResult::forward), part(&AttentionResult::backward),
          part(&AttentionResult::whole)};
}

// Everything that identifies the row, under the names of `compile`'s flags.
Json key_of_way(const AttentionResult& r) {
  Json out = part_of_key(r.spec.run, [](const RunField& f) {
    return is_of_attention(f) && f.group == FieldGroup::kHow;
  });
  out["ops"] = name_of(ops_of(r.spec));
  out["width"] = r.spec.width;
  out["attention_context"] = r.spec.run.shape.context;
  return out;
}

void add_part(Fields<AttentionWay>& out, const std::string& name,
              AttentionWay::Part AttentionWay::*part) {
  out.add(time_fields(name + "_", name),
          [part](const AttentionWay& way) { return &(way.*part).samples; });
  out.add(against_fields(name, "against first", "the first row of the same attention"),
          [part](const AttentionWay& way) {
            const std::optional<Against>& against = (way.*part).against;
            return against ? &*against : nullptr;
          });
}

Fields<AttentionWay> attention_fields() {
  using W = const AttentionWay&;
  Fields<AttentionWay> out = {
      {as_key(int_column("batch", "", "B")), [](W w) { return w.r.spec.run.shape.batch; }},
      {as_key(int_column("width", "", "D; there are no heads")),
       [](W w) { return w.r.spec.width; }},
      {as_key(int_column("context", "", "T")), [](W w) { return w.r.spec.run.shape.context; }},
      {as_key(text_column("precision")), [](W w) { return name_of(w.r.spec.run.precision); }},
      {as_key(text_column("ops", "", "softmax in parts, or as one kernel")),
       [](W w) { return name_of(ops_of(w.r.spec)); }},
      {as_key(text_column("attention", "", "its form: naive or flash")),
       [](W w) { return name_of(w.r.spec.run.attention); }},
      {as_key(text_column("executor")), [](W w) { return name_of(w.r.spec.run.executor); }},
      {as_key(text_column("compile_passes", "", "of the executor, or named")),
       [](W w) { return key_of(w.r.spec.run).at("compile_passes"); }},
      {as_key(text_column("device")), [](W w) { return w.r.device; }},
      {text_column("status", "", "ok or oom"), [](W w) { return name_of(w.r.status); }}};
  add_part(out, "forward", &AttentionWay::forward);
  add_part(out, "backward", &AttentionWay::backward);
  add_part(out, "whole", &AttentionWay::whole);
  const auto if_ok = [](W w, std::int64_t value) { return when(w.r.status == Status::kOk, value); };
  out.add(as_exact(int_column("launches", "launching nodes",
                              "of both parts; each runs one kernel or more")),
          [if_ok](W w) { return if_ok(w, w.r.whole.launches); });
  out.add(as_exact(bytes_column("peak_bytes", "peak", "the most of the whole step")),
          [if_ok](W w) { return if_ok(w, w.r.peak_bytes); });
  out.add(data_only(text_column("detail", "", "why the status is not ok")),
          [](W w) { return or_null(w.r.detail); });
  add_verdict(out);
  out.add(data_only(structured_column("cell", "all parameters of the row")),
          [](W w) { return key_of_way(w.r); });
  return out;
}

// --- the ladder -------------------------------------------------------------------------------

struct LadderRow {
  const LadderStep& step;
  TimedSamples samples;
  std::optional<Against> below, ground;
};

std::string_view name_of_rung(const LadderStep& step) {
  return step.rung == nullptr ? "naive" : step.rung->name;
}

Fields<StepError> error_fields() {
  return {{as_exact(real_column("loss_error", "loss error", "", -1, "relative, against float64")),
           &StepError::loss},
          {as_exact(real_column("gradient_error", "gradients", "", -1,
                                "relative, of the norm of all gradients")),
           &StepError::gradients},
          {data_only(int_column("error_layers", "", "of the model that errors are of")),
           &StepError::layers}};
}

Fields<LadderRow> ladder_fields() {
  using L = const LadderRow&;
  Fields<LadderRow> out = {
      {text_column("rung", "", "on top of all above it"), [](L l) { return name_of_rung(l.step); }},
      {text_column("changes", "",
                   "the program, its execution (the same ops run in another way), or "
                   "nothing: the rung finds nothing to do here"),
       [](L l) { return l.step.effect ? Json(name_of(*l.step.effect)) : Json(); }}};
  const auto cell = [](const LadderRow& row) -> const CompileCell& { return row.step.cell; };
  add_measured(out, cell);
  out.add(against_fields("rung", "against row above", "the row above"),
          [](L l) { return l.below ? &*l.below : nullptr; });
  out.add(timed(real_column("speedup", "against naive", "x", 3,
                            "median of the first row over this one")),
          [](L l) { return l.ground ? Against::inverse(l.ground->comparison.ratio) : Json(); });
  add_bytes(out, cell);
  out.add(error_fields(), [](L l) { return l.step.error ? &*l.step.error : nullptr; });
  out.add(text_column("what", "", "what the step does differently"), [](L l) {
    return l.step.rung ? l.step.rung->what : "composites in parts, op by op, float32";
  });
  add_verdict(out);
  const Fields<RunSpec> run = run_columns();
  for (const Field<RunSpec>& field : run) {
    out.add(data_only(field.column),
            [get = field.get](L l) { return get(l.step.cell.result.spec.step); });
  }
  out.add(data_only(structured_column("cell", "the ladder's parameters, which no rung sets")),
          [](L l) { return key_of_ladder(l.step.cell.result.spec.step); });
  return out;
}

// None of a step that did not run.
std::optional<TimedSamples> samples_of(const LadderStep& step) {
  const CellResult& result = step.cell.result;
  return result.status == Status::kOk ? std::optional(timed_samples(result)) : std::nullopt;
}

}  // namespace

Table way_table(std::span<const CompileCell> cells) {
  std::vector<WayRow> rows;
  for (const CompileCell& cell : cells) {
    const CompileCell* base = base_of(cells, cell);
    const TimedSamples samples = timed_samples(cell.result);
    const bool is_base = base == nullptr || base == &cell;
    rows.push_back({cell, samples,
                    is_base ? std::nullopt : Against::of(timed_samples(base->result), samples)});
  }
  Table table = table_of("ways", "One step, eager and compiled", way_fields(), rows);
  table.notes = {"starts leave out the start of the device and the filling in of weights", kIsNote};
  note_energy(table);
  std::vector<ResultRow> to_judge;
  for (const CompileCell& cell : cells) to_judge.push_back(judged(cell));
  add_verdicts(table, to_judge);
  return table;
}

Table way_attention_table(std::span<const AttentionResult> results) {
  std::vector<AttentionWay> rows;
  for (const AttentionResult& r : results) rows.push_back(attention_way(results, r));
  Table table = table_of("attention_ways", "Attention by itself, eager and compiled",
                         attention_fields(), rows);
  table.notes = {
      "forward and backward are timed with a stop between them, where nothing is replayed as a "
      "graph; whole is without a stop",
      kIsNote};
  add_verdicts(table, results, Json::object());
  return table;
}

Table ladder_table(std::span<const LadderStep> steps) {
  std::vector<LadderRow> rows;
  const LadderStep* below = nullptr;
  for (const LadderStep& step : steps) {
    const TimedSamples samples = timed_samples(step.cell.result);
    rows.push_back({step, samples, below ? Against::of(samples_of(*below), samples) : std::nullopt,
                    below ? Against::of(samples_of(steps.front()), samples) : std::nullopt});
    below = &step;
  }
  Table table = table_of("ladder", "The ladder: what each rung buys", ladder_fields(), rows);
  for (const LadderRow& row : rows) {
    if (row.step.effect != RungEffect::kNothing) continue;
    const bool has_moved = row.below && row.below->comparison.is_apart;
    const std::string_view is = has_moved ? fine_words_of(row.below->comparison) : "";
    table.notes.push_back(fmt::format(
        "{} changes nothing here: the same program, run in the same way{}", row.step.rung->name,
        has_moved ? fmt::format("; that it is {} all the same is noise between rungs, which the "
                                "verdicts of others have as well",
                                is)
                  : std::string()));
  }
  for (const LadderRow& row : rows) {
    const CellResult& here = row.step.cell.result;
    const bool is_graph =
        here.status == Status::kOk && row.step.rung != nullptr && row.step.rung->name == "graph";
    if (!is_graph || here.captured || row.step.effect != RungEffect::kExecution) continue;
    table.notes.emplace_back(
        "graph: no graph was captured here; what it changes is the arena, which it has as well");
  }
  // A signal ends a turn where it stands.
  const auto count = [](const LadderStep& step) { return step.cell.result.samples_ms.size(); };
  const auto ran = [](const LadderStep& step) { return step.cell.result.status == Status::kOk; };
  const auto [least, most] = std::ranges::minmax_element(
      steps, {}, [&](const LadderStep& step) { return ran(step) ? count(step) : 0; });
  if (!steps.empty() && std::ranges::all_of(steps, ran) && count(*most) > count(*least)) {
    table.notes.push_back(
        fmt::format("stopped in the middle of a turn: {} has {} samples, {} has {}",
                    name_of_rung(*most), count(*most), name_of_rung(*least), count(*least)));
  }
  const bool has_errors = std::ranges::any_of(steps, [](auto& step) { return bool(step.error); });
  table.notes.emplace_back(
      has_errors
          ? "errors: loss and gradients of one sequence by forward and backward alone, the model "
            "cut to a few layers, against the same weights and tokens in float64"
          : "errors against float64 were not measured");
  table.notes.emplace_back(kIsNote);
  note_energy(table);
  std::vector<ResultRow> to_judge;
  for (const LadderStep& step : steps) to_judge.push_back(judged(step.cell));
  add_verdicts(table, to_judge);
  return table;
}

}  // namespace tracestep

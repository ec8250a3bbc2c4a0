#include "lab/compile/tables.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "lab/compile/against.h"
#include "lab/measure/no_times.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/report/digits.h"
#include "lab/report/known_columns.h"
#include "passes/pipeline.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The column of energy, shown to people only where the device counts it.
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
  return {
      {as_exact(col::launches("nodes of a step that launch: each runs one kernel or more")),
       [if_ok](C c) { return if_ok(c, c.result.launches); }},
      {data_only(col::kernels("kernels, copies and fills of the graph that steps replayed; empty "
                              "where they were issued launch by launch, and not counted")),
       [](C c) { return or_null(c.result.kernels); }},
      {as_exact(bytes_column(
           "moved_bytes", "moved, modelled",
           "each kernel reads its distinct operands once and writes its results once")),
       [if_ok](C c) { return if_ok(c, moved_bytes(c.result.program)); }},
      {as_exact(col::peak_bytes("requested bytes at the peak, by the allocator")),
       [if_ok](C c) { return if_ok(c, c.result.peak_bytes); }},
      {as_exact(col::arena_bytes("of that; empty: buffers come from the allocator")),
       [](C c) { return or_null(c.result.arena_bytes); }},
      {as_exact(col::saved_bytes("forward values kept for backward, by the program")),
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

// Adds a note below tables that show energy.
void note_energy(Table& table) {
  const std::size_t at = table.index_of("energy_j").value();
  if (!std::ranges::any_of(table.rows, [at](const auto& row) { return !row[at].is_null(); }))
    return;
  table.notes.emplace_back(
      "energy: by the device's counter, which moves in steps of some tens of milliseconds, so that "
      "even two digits are rough; none where it says more than the power limit allows");
}

// Adds the columns of status and times that every measured cell has. `cell(row)` is a row's cell.
template <class Row, class CellOf>
void add_measured(Fields<Row>& fields, CellOf cell) {
  fields.add(col::status("ok or oom"),
             [cell](const Row& row) { return name_of(cell(row).result.status); });
  fields.add(time_fields("", "median"), &Row::samples);
}

template <class Row, class CellOf>
void add_bytes(Fields<Row>& fields, CellOf cell) {
  fields.add(byte_fields(), [cell](const Row& row) { return &cell(row); });
  fields.add(data_only(col::detail("why the status is not ok")),
             [cell](const Row& row) { return or_null(cell(row).result.detail); });
}

// Adds the validity checker's column, which is filled in when all rows are there.
template <class Row>
void add_verdict(Fields<Row>& fields) {
  fields.add(verdict_column(), [](const Row&) { return Json(); });
}

// The cell as a row that the validity checker can read.
ResultRow judged(const CompileCell& cell) {
  return ResultRow::of(cell_columns(), cell_row(cell.result), Json::object());
}

// --- whole steps ------------------------------------------------------------------------------
// A row of way_table(), with the comparisons with the first row of the same step and with eager.
struct WayRow {
  const CompileCell& cell;
  TimedSamples samples;
  std::optional<Against> first, eager;
};

// Returns the first cell that ran of `cell`'s step, in any form of execution; nullptr: none ran.
const CompileCell* base_of(std::span<const CompileCell> cells, const CompileCell& cell) {
  const auto found = std::ranges::find_if(cells, [&](const CompileCell& other) {
    return other.result.status == Status::kOk &&
           same_but(other.result.spec.step, cell.result.spec.step, fields_that(&RunField::is_form));
  });
  return found == cells.end() ? nullptr : &*found;
}

// Returns the eager cell of `cell`'s step with the same ops; nullptr: it is `cell`, or did not run.
const CompileCell* eager_of(std::span<const CompileCell> cells, const CompileCell& cell) {
  const auto says_how = [](const RunField& field) {
    return field.name == "executor" || field.name == "compile_passes";
  };
  const auto found = std::ranges::find_if(cells, [&](const CompileCell& other) {
    const RunSpec& step = other.result.spec.step;
    return other.result.status == Status::kOk && step.executor == ExecutorKind::kEager &&
           same_but(step, cell.result.spec.step, fields_that(says_how));
  });
  return found == cells.end() || &*found == &cell ? nullptr : &*found;
}

Fields<WayRow> way_fields() {
  Fields<WayRow> out{};
  const auto cell = [](const WayRow& row) -> const CompileCell& { return row.cell; };
  out.add(program_columns(), [](const WayRow& row) { return &row.cell.result.spec.step; });
  out.add(as_key(col::device), [](const WayRow& row) { return row.cell.result.device; });
  add_measured(out, cell);
  out.add(against_fields("base", "against first", "the first row of the same step"),
          &WayRow::first);
  out.add(against_fields("eager", "against eager", "eager with the same ops"), &WayRow::eager);
  add_bytes(out, cell);
  out.add(start_fields(), [](const WayRow& row) { return row.cell.start; });
  add_verdict(out);
  return out;
}

// --- the ladder -------------------------------------------------------------------------------
// A row of ladder_table(), with the comparisons with the rung below and with the first row.
struct LadderRow {
  const LadderStep& step;
  TimedSamples samples;
  std::optional<Against> below, ground;
};

std::string_view name_of_rung(const LadderStep& step) {
  return step.rung == nullptr ? "naive" : step.rung->name;
}

Fields<StepError> error_fields() {
  return {{as_exact(col::loss_error), &StepError::loss},
          {as_exact(col::gradient_error), &StepError::gradients},
          {data_only(col::error_layers), &StepError::layers}};
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
  out.add(against_fields("rung", "against row above", "the row above"), &LadderRow::below);
  out.add(timed(col::speedup("median of the first row over this one")),
          [](L l) { return l.ground ? l.ground->speedup() : Json(); });
  add_bytes(out, cell);
  out.add(error_fields(), [](L l) { return l.step.error; });
  out.add(col::what("what the step does differently"), [](L l) {
    return l.step.rung ? l.step.rung->what : "composites in parts, op by op, float32";
  });
  add_verdict(out);
  const Fields<RunSpec> run = run_columns();
  for (const Field<RunSpec>& field : run) {
    out.add(data_only(field.column),
            [get = field.get](L l) { return get(l.step.cell.result.spec.step); });
  }
  out.add(data_only(col::cell("the ladder's parameters, which no rung sets")),
          [](L l) { return key_of_ladder(l.step.cell.result.spec.step); });
  return out;
}

// The step's samples with their statistics; nullopt: it did not run.
std::optional<TimedSamples> samples_of(const LadderStep& step) {
  const CellResult& result = step.cell.result;
  return result.status == Status::kOk ? std::optional(timed_samples(result)) : std::nullopt;
}

// Adds notes: the rungs that changed nothing, and among these the rungs whose times differ anyway.
void note_rungs_without_effect(std::span<const LadderRow> rows, Table& table) {
  std::vector<std::string_view> idle;
  for (const LadderRow& row : rows) {
    if (row.step.effect != RungEffect::kNothing) continue;
    idle.push_back(row.step.rung->name);
    if (!row.below || !row.below->comparison.is_apart) continue;
    table.notes.push_back(
        fmt::format("{} is {} all the same: noise between rungs, which the verdicts of others have "
                    "as well",
                    idle.back(), fine_words_of(row.below->comparison)));
  }
  if (idle.empty()) return;
  table.notes.insert(table.notes.begin(),
                     fmt::format("{} {} nothing here: the same program, run in the same way",
                                 fmt::join(idle, ", "), idle.size() == 1 ? "changes" : "change"));
}

}  // namespace

Table way_table(std::span<const CompileCell> cells) {
  std::vector<WayRow> rows;
  for (const CompileCell& cell : cells) {
    const TimedSamples samples = timed_samples(cell.result);
    const auto against = [&](const CompileCell* base) {
      const bool is_base = base == nullptr || base == &cell;
      return is_base ? std::nullopt : Against::of(timed_samples(base->result), samples);
    };
    rows.push_back({cell, samples, against(base_of(cells, cell)), against(eager_of(cells, cell))});
  }
  Table table = table_of("ways", "One step, eager and compiled", way_fields(), rows);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].result.computes) empty_times(table, i);
  }
  table.notes = {"starts leave out the start of the device and the filling in of weights", kIsNote};
  note_energy(table);
  std::vector<ResultRow> to_judge;
  for (const CompileCell& cell : cells) to_judge.push_back(judged(cell));
  add_verdicts(table, to_judge);
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
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].cell.result.computes) empty_times(table, i);
  }
  note_rungs_without_effect(rows, table);
  for (const LadderRow& row : rows) {
    const CellResult& here = row.step.cell.result;
    const bool is_graph =
        here.status == Status::kOk && row.step.rung != nullptr && row.step.rung->name == "graph";
    if (!is_graph || here.captured || row.step.effect != RungEffect::kExecution) continue;
    table.notes.emplace_back(
        "graph: no graph was captured here; what it changes is the arena, which it has as well");
  }
  // A signal may end a round of visits early: the remaining rungs then have fewer samples.
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

// tracestep compile: what compiling a step gains, and which part of it gains what.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/compile/tables.h"
#include "lab/measure/run_columns.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

std::vector<std::string> part_names() {
  std::vector<std::string> out{"steps", "attention"};
  for (const ProgramPart& part : kProgramParts) out.emplace_back(part.name);
  out.emplace_back("ladder");
  return out;
}

std::vector<std::string> rung_names() {
  std::vector<std::string> out;
  for (const Rung& rung : all_rungs()) out.emplace_back(rung.name);
  return out;
}

struct CompileOptions {
  RunGrid grid{{.model = preset("tiny"), .shape = {.batch = 4, .context = 128}}};
  OutputOptions output;
  std::vector<std::string> parts = part_names();
  std::vector<std::string> rungs = {};                                  // empty: all
  std::vector<std::int64_t> widths = {16, 64}, contexts = {256, 1024};  // of attention by itself
  CompileSpec spec;
  int rounds = 1;
  ErrorSpec error;

  bool has(std::string_view part) const { return std::ranges::find(parts, part) != parts.end(); }
};

// State that the parts of the command share while they measure.
struct Work {
  const CompileOptions& options;
  const std::vector<RunSpec> runs;  // the whole grid
  Cells& cells;
  ProgressLine progress = {};
  std::vector<Table> tables = {};
  Outcome oom = {};  // of whole steps: that of the last that ran out of memory

  RoundOptions rounds() const { return {.rounds = options.rounds, .seed = runs[0].seed}; }
};

// Returns the runs; of those that differ only in `fields`, it keeps the last one.
std::vector<RunSpec> without(std::span<const RunSpec> runs,
                             const std::vector<std::string_view>& fields) {
  std::vector<RunSpec> out;
  for (const RunSpec& run : runs) {
    const auto twin = std::ranges::find_if(
        out, [&](const RunSpec& other) { return same_but(run, other, fields); });
    if (twin == out.end()) {
      out.push_back(run);
    } else {
      *twin = run;
    }
  }
  return out;
}

void measure_steps(Work& work) {
  std::vector<CompileCell> cells;
  constexpr double kSecondsOfStarts = 20;  // two, with what is compiled
  for (CellResult& result :
       measure_steps(work.cells, work.runs, work.options.spec.protocol, work.rounds(),
                     {.program = true, .more_seconds = kSecondsOfStarts})) {
    if (result.status == Status::kOutOfMemory) {
      work.oom = {result.status, result.detail, result.lack};
    }
    cells.push_back({std::move(result)});
  }
  for (CompileCell& cell : cells) {
    if (work.cells.is_stopped() || !work.options.spec.starts) break;
    work.progress.update("until the first step  " + label_of(cell.result.spec));
    cell.start = work.cells.besides<std::optional<StartTimes>>("start", cell.result.spec, [&] {
      add_start(make_device, cell);
      return cell.start;
    });
  }
  work.tables.push_back(way_table(cells));
}

// Returns the calls of attention in the grid, each once: of the field `ops` only the softmax
// counts, and flash attention is the same for all values.
std::vector<AttentionSpec> attention_specs(const Work& work) {
  // Drops the fields that attention by itself does not have, or has other flags for.
  const std::vector<RunSpec> runs = without(work.runs, fields_that([](const RunField& field) {
                                              return !is_of_attention(field) || is_shape(field);
                                            }));
  std::vector<AttentionSpec> out;
  for (std::int64_t width : work.options.widths) {
    for (std::int64_t context : work.options.contexts) {
      for (const RunSpec& run : runs) {
        AttentionSpec spec{.run = run,
                           .width = width,
                           .protocol = {.warmup = work.options.spec.protocol.warmup,
                                        .steps = work.options.spec.protocol.steps,
                                        .max_seconds = 0}};
        spec.run.shape = {.batch = AttentionSpec().run.shape.batch, .context = context};
        const bool is_flash = run.attention == AttentionForm::kFlash;
        spec.saved.exp = !is_flash && !run.ops.keeps(Composite::kSoftmax);
        const auto is_same = [&](const AttentionSpec& other) {
          return other.width == width && other.run.shape.context == context &&
                 other.saved.exp == spec.saved.exp && same_but(other.run, spec.run, {"ops"});
        };
        if (std::ranges::none_of(out, is_same)) out.push_back(std::move(spec));
      }
    }
  }
  return out;
}

void measure_attentions(Work& work) {
  constexpr double kSeconds = 10;
  const auto plan_of = [](const AttentionSpec& spec) {
    return JobPlan{.place = spec.run.place, .seconds = kSeconds};
  };
  work.tables.push_back(way_attention_table(work.cells.measure<AttentionResult>(
      "attention", attention_specs(work), work.rounds(), plan_of,
      [&](const AttentionSpec& spec, const StepObserver&) {
        return visit(make_device, spec, &work.cells.stop());
      })));
}

// Names a ladder "small 512 step", or by its whole key where that names another ladder, too.
std::string label_of_ladder(const RunSpec& run, std::span<const RunSpec> all) {
  const auto brief = [](const RunSpec& r) {
    return fmt::format("{} {} {}", r.model.name, r.shape.context, name_of(r.mode));
  };
  const auto same = std::ranges::count(all, brief(run), brief);
  if (same == 1) return brief(run);
  return label_of(key_of_ladder(run));
}

// Measures the ladder from plain to compiled steps by size and context, in the last of the modes.
void measure_ladders(Work& work) {
  constexpr double kSecondsOfErrors = 20;  // against float64, on a part of the model
  std::vector<const Rung*> rungs;
  for (const std::string& name : work.options.rungs.empty() ? rung_names() : work.options.rungs) {
    rungs.push_back(&rung_named("--rungs", name));
  }
  const std::vector<RunSpec> runs = without(work.runs, fields_that([](const RunField& field) {
                                              return is_set_by_rungs(field) || field.name == "mode";
                                            }));
  for (const RunSpec& run : runs) {
    if (work.cells.is_stopped()) break;
    ErrorSpec error = work.options.error;
    if (!traits_of(run.place).computes) error.layers = 0;
    StepErrors errors(make_reference, error);
    const std::string label = label_of_ladder(run, runs);
    const std::vector<CellResult> results = measure_steps(
        work.cells, ladder_runs(run, rungs), work.options.spec.protocol,
        {.rounds = work.options.rounds, .seed = run.seed},
        {.program = true, .stage = "ladder " + label, .more_seconds = kSecondsOfErrors});
    std::map<std::string, std::optional<StepError>> of_runs;
    for (const CellResult& result : results) {
      if (result.status != Status::kOk || work.cells.is_stopped()) continue;
      work.progress.update(label_of(result.spec) + " against float64");
      of_runs[key_of(result.spec.step).dump()] = work.cells.besides<std::optional<StepError>>(
          "error", result.spec, [&] { return errors.of(make_device, result.spec.step); });
    }
    const std::vector<LadderStep> steps =
        ladder_of(rungs, ladder_runs(run, rungs), results, of_runs);
    if (steps.empty()) continue;
    Table table = ladder_table(steps);
    table.title += fmt::format(": {}", label);
    if (runs.size() > 1) table.name += "@" + label;
    work.tables.push_back(std::move(table));
  }
}

int run_compile(const CompileOptions& o, Cells& cells) {
  cells.stop("cells");
  Work work{.options = o, .runs = runs_of(o.grid, Takes::kPlanner, cells.use()), .cells = cells};
  probe_output(o.output);
  const Json environment = cells.environment_of(work.runs[0]);
  if (o.has("steps")) measure_steps(work);
  if (o.has("attention")) measure_attentions(work);
  for (const ProgramPart& part : kProgramParts) {
    if (!o.has(part.name) || !cells.makes_tables()) continue;
    // Backward is in one program with forward in every mode that has it.
    std::vector<RunSpec> runs = without(work.runs, {"mode"});
    for (RunSpec& run : runs) run.mode = Mode::kForwardBackward;
    work.tables.push_back(part.table(cells.device_factory(), runs));
  }
  if (o.has("ladder")) measure_ladders(work);
  work.progress.done();
  CellTables out{.output = o.output,
                 .schema = "tracestep.compile/1",
                 .environment = environment,
                 .tables = std::move(work.tables),
                 .done = 1,
                 .wanted = 1,
                 .is_cut = cells.is_stopped()};
  const bool is_one_step = work.runs.size() == 1 && o.parts == std::vector<std::string>{"steps"};
  if (is_one_step && work.oom.status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "compile", work.oom.detail,
                           oom_hint(work.runs[0], work.oom.lack));
  }
  return cells.finish(std::move(out));
}

void add_what(OptionSet& set, CompileOptions& o) {
  set.group("What to measure");
  set.choices("--part", o.parts, part_names(), "parts of the report");
  set.choices("--rungs", o.rungs, rung_names(),
              "rungs of the ladder, in any order, each on top of those before it; by default all");
  set.integer(
      "--rounds", o.rounds, {1, 1000},
      "measure the cells of a part in so many rounds, each prepared anew, for machines that "
      "are not steady: each round adds --steps samples to every row");
  add_protocol_flag(set, o.spec.protocol, "steps", "timed steps of each row");
  add_protocol_flag(set, o.spec.protocol, "warmup");
  set.integers("--width", o.widths, kShapeRange,
               "attention by itself: widths D, with batch 8 and one head");
  set.integers("--attention-context", o.contexts, kShapeRange, "attention by itself: contexts T");
  add_error_options(set, o.error);
}

}  // namespace

Command compile_command() {
  const auto options = std::make_shared<CompileOptions>();
  for (const auto& [field, values] :
       std::initializer_list<std::pair<const char*, std::vector<std::string>>>{
           {"mode", {"forward", "forward-backward", "step"}},
           {"ops", {"primitive", "fused"}},
           {"executor", {"eager", "compiled"}}}) {
    options->grid.offer(field, values);
  }
  Command command{.name = "compile"};
  OptionSet& set = command.options;
  add_what(set, *options);
  add_run_fields(set, options->grid, Values::kGrid,
                 "cpu; cuda[:N]; null (bytes and launches alone)");
  add_output_options(set, options->output);
  measures_with(command, options, run_compile);
  command.job_fields = fields_that([](const RunField& field) {
    // A job must hold all rows that are compared with each other, those of a ladder's rungs too.
    return field.is_axis && !field.is_form && field.name != "mode" && field.name != "precision";
  });
  return command;
}

}  // namespace tracestep::cli

// tracestep memory: where the bytes of a step go, predicted from its program and measured on a
// device, buffer by buffer.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "backends/null/null_device.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/memory_as_pytorch.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "lab/fit/advice.h"
#include "lab/memory/tables.h"
#include "lab/predict/time_source.h"
#include "lab/snapshots/fingerprint.h"
#include "lab/snapshots/snapshot.h"
#include "run/memory_limit.h"
#include "spec/planned.h"

namespace tracestep::cli {
namespace {

struct MemoryOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  bool predict = false;
  Protocol protocol = {.warmup = 1, .steps = 2};
  std::vector<std::string> tables;
  BufferFilter filter;
  std::size_t timeline_rows = 40;
  std::size_t largest = 10;
  std::filesystem::path snapshot, snapshot_json, fingerprint;
  std::size_t max_entries = 1'000'000;
  std::string account_as;
  Accounting accounting;
  TimeOptions times;
  std::string as;  // "pytorch"
  PytorchOptions pytorch;

  bool has_times() const { return !times.published.empty() || !times.calibration.empty(); }
};

constexpr const char* kCourse = "course-pytorch";
constexpr const char* kComponents = "components";  // also of a grid

// An entry in the list of tables for a report on one cell. Formats for people leave out a long
// table unless it is asked for.
struct OneTable {
  const char* name;
  bool is_long;
  Table (*make)(const MemoryCell& cell, const MemoryOptions& options);
};

constexpr OneTable kTables[] = {
    {"categories", false,
     [](const MemoryCell& c, const MemoryOptions&) { return category_table(c); }},
    {"phases", false, [](const MemoryCell& c, const MemoryOptions&) { return phase_table(c); }},
    {"contract", false,
     [](const MemoryCell& c, const MemoryOptions&) { return contract_table(c); }},
    {"formulas", false, [](const MemoryCell& c, const MemoryOptions&) { return formula_table(c); }},
    {"holders", false, [](const MemoryCell& c, const MemoryOptions&) { return holder_table(c); }},
    {"largest", false,
     [](const MemoryCell& c, const MemoryOptions& o) {
       return largest_table(c, o.largest, o.filter);
     }},
    {"saved_by_op", false,
     [](const MemoryCell& c, const MemoryOptions&) { return saved_by_op_table(c); }},
    {"saved_by_block", false,
     [](const MemoryCell& c, const MemoryOptions&) { return saved_by_block_table(c); }},
    {"recompute", false,
     [](const MemoryCell& c, const MemoryOptions&) { return recompute_table(c); }},
    {"timeline", true,
     [](const MemoryCell& c, const MemoryOptions& o) {
       return timeline_table(c, o.timeline_rows);
     }},
    {"ledger", true, [](const MemoryCell& c, const MemoryOptions&) { return ledger_table(c); }},
    {kComponents, true,
     [](const MemoryCell& c, const MemoryOptions& o) {
       return component_table({&c, 1}, o.filter);
     }},
    {"loads", true,
     [](const MemoryCell& c, const MemoryOptions& o) { return load_table(c, o.filter); }},
    {"gradient_slope", true,
     [](const MemoryCell& c, const MemoryOptions&) { return gradient_slope_table(c); }},
    {"buffers", true,
     [](const MemoryCell& c, const MemoryOptions& o) { return buffer_table(c, o.filter); }},
};

std::vector<std::string> table_names() {
  std::vector<std::string> out{"all"};
  for (const OneTable& t : kTables) out.emplace_back(t.name);
  for (const char* name : kPytorchTables) out.emplace_back(name);  // of --as pytorch
  return out;
}

bool has_snapshot(const MemoryOptions& o) {
  return !o.snapshot.empty() || !o.snapshot_json.empty();
}

void check_options(const MemoryOptions& o, std::size_t cells) {
  if (cells > 1 && has_snapshot(o)) {
    throw Error(ErrorCode::kUsage, "--snapshot",
                fmt::format("a snapshot is of one step, and this is a grid of {}", cells),
                "give one size, context, mode, precision and granularity");
  }
  if (cells > 1 && !o.tables.empty() && o.tables != std::vector<std::string>{kComponents}) {
    throw Error(ErrorCode::kUsage, "--tables",
                fmt::format("these tables are of one step, and this is a grid of {}", cells),
                fmt::format("give one size, context, mode, precision and granularity, or {} alone",
                            kComponents));
  }
  if (!o.account_as.empty() && !o.predict) {
    throw Error(ErrorCode::kUsage, "--account-as", "a form of another implementation predicts",
                "add --predict");
  }
  if (!o.snapshot.empty()) check_writable(o.snapshot, "snapshot"_field);
  if (!o.snapshot_json.empty()) check_writable(o.snapshot_json, "snapshot_json"_field);
}

void write_snapshot(const MemoryOptions& o, const MemoryRun& run) {
  if (!has_snapshot(o)) return;
  // The only device of the file is the first entry of the viewer's menu, also when it is a CPU.
  const MemorySnapshot snapshot = snapshot_of(run, o.max_entries);
  if (const std::string broken = broken_rule(snapshot); !broken.empty() && !snapshot.left_out) {
    log_warn("snapshot: viewers may refuse it: {}", broken);
  }
  if (snapshot.left_out > 0) {
    log_warn("snapshot: {} older events are left out; --max-entries is {}", snapshot.left_out,
             o.max_entries);
  }
  const auto write = [](const std::filesystem::path& path, const std::string& bytes) {
    if (path.empty()) return;
    write_file(path, bytes);
    log_info("snapshot: {} in {}", format_bytes(std::ssize(bytes)), path.string());
  };
  write(o.snapshot, pickle_of(snapshot));
  write(o.snapshot_json, json_of(snapshot));
}

MemoryRunSpec spec_of(const RunSpec& run, const MemoryOptions& o, bool is_only) {
  return {.step = run,
          .protocol = {.warmup = o.predict ? 0 : o.protocol.warmup,
                       .steps = is_only ? o.protocol.steps : 0,
                       .recorded_steps = 1},
          .times = is_only};
}

// Runs the step on its device, or on one with the device's traits that computes nothing.
MemoryRun recorded(const RunSpec& run, const MemoryOptions& o, bool is_here) {
  const MemoryRunSpec spec = spec_of(run, o, false);
  if (is_here) return run_memory(make_device, spec);
  const NullOptions null{.traits = traits_of(run.place), .memory_limit = limit_in_bytes(run.place)};
  return run_memory([&](const RunSpec&) { return make_null_device(null); }, spec);
}

// Runs or predicts a step. In a grid, a step that cannot meet its memory budget is a result, too.
MemoryRun run_of(const MemoryRunSpec& spec, const MemoryOptions& o, bool is_only) {
  const auto run = [&] {
    return o.predict ? predict_memory(spec.step, traits_of(spec.step.place))
                     : run_memory(make_device, spec);
  };
  return or_beyond_budget(is_only, spec.step, run, [&](const BudgetNotMet& error) {
    return run_beyond_budget(spec.step, error);
  });
}

// Drops records that only reports on one cell and pictures read: a file of many cells is small.
void drop_events(MemoryRun& run) {
  run.events.clear();
  run.leaf_at.clear();
  run.holdings.clear();
  run.moments.clear();
}

std::vector<MemoryCell> cells_of(const std::vector<RunSpec>& runs, const MemoryOptions& o,
                                 Cells& driver) {
  constexpr const char* kDrawn = "memory_drawn";
  const bool is_only = runs.size() == 1,
             is_drawn = !o.output.pictures.empty() || driver.is_asked_for(kDrawn);
  std::vector<MemoryRunSpec> specs;
  for (const RunSpec& run : runs) specs.push_back(spec_of(run, o, is_only));
  std::vector<MemoryRun> found;
  if (o.predict) {
    CellProgress progress(specs.size());
    for (const MemoryRunSpec& spec : specs) {
      progress.begin(label_of(spec));
      found.push_back(run_of(spec, o, is_only));
    }
  } else {
    const char* stage = is_only ? "memory_alone" : is_drawn ? kDrawn : "memory";
    const auto plan_of = [&](const MemoryRunSpec& spec) {
      return plan_of_steps(spec.step, o.protocol.warmup + 1 + 2 * o.protocol.steps);
    };
    found = driver.measure<MemoryRun>(stage, specs, {}, plan_of,
                                      [&](const MemoryRunSpec& spec, const StepObserver&) {
                                        MemoryRun run = run_of(spec, o, is_only);
                                        if (run.oom) run.detail = run.oom->message;
                                        if (!is_only && !is_drawn) drop_events(run);
                                        return run;
                                      });
  }
  std::vector<MemoryCell> out;
  for (MemoryRun& run : found) {
    add_program(run, traits_of(run.spec.step.place));
    const RunSpec step = run.spec.step;
    out.push_back({.run = std::move(run), .limit_bytes = limit_in_bytes(step.place)});
    const bool is_accounted = !o.account_as.empty() && out.back().run.has_program();
    if (is_accounted) out.back().accounted = accounted_peak(step, o.accounting);
  }
  return out;
}

// Adds tables of a step out of memory. `times`: of changes that would fit; nullptr: not known.
void add_failure(const MemoryCell& cell, const MemoryOptions& o, bool is_here,
                 const Predictor* times, std::vector<Table>& tables) {
  MemoryCell failed = cell;
  if (!cell.run.oom) failed.run = recorded(cell.run.spec.step, o, is_here);
  if (!failed.run.oom) return;
  tables.push_back(failure_table(failed));
  if (failed.run.oom->on_host) return;  // the device's bytes are not what was missing
  tables.push_back(failure_holder_table(failed));
  // If the device itself ran out, the bytes that were alive at that moment are the limit.
  std::int64_t limit = failed.run.oom->limit_bytes;
  for (const LiveAllocation& block : failed.run.oom->live) {
    if (failed.run.oom->limit_bytes == 0) limit += block.requested_bytes;
  }
  const FitQuestion asked{
      .step = failed.run.spec.step,
      .traits = failed.run.traits,
      .limit_bytes = limit,
      .times = times,
      .asked = figures_of(failed.run.spec.step, failed.run.program, failed.run.traits, times),
      .division = BatchDivision::kIfNeeded};
  tables.push_back(remedy_table(asked, advise(asked)));
}

void add_one_cell(const MemoryCell& cell, const MemoryOptions& o, std::vector<Table>& tables) {
  const auto wanted = [&](const OneTable& t) {
    if (o.tables.empty()) return !t.is_long || o.output.format == Format::kJson;
    return std::ranges::any_of(o.tables,
                               [&](const std::string& n) { return n == "all" || n == t.name; });
  };
  for (const OneTable& t : kTables) {
    if (!wanted(t)) continue;
    Table table = t.make(cell, o);
    if (!table.rows.empty() || !o.tables.empty()) tables.push_back(std::move(table));
  }
}

// Refuses a component that has no buffer in any cell: its name must be wrong.
void check_filter(const BufferFilter& filter, std::span<const MemoryCell> cells) {
  for (const MemoryCell& cell : cells) {
    for (const MappedBuffer& buffer : cell.run.map.buffers) {
      if (is_part_of(filter.component, buffer.path)) return;
    }
  }
  throw Error(ErrorCode::kUsage, "--component",
              fmt::format("no buffer belongs to \"{}\"", filter.component),
              "use a part of a model path, as attn, ffn.swiglu or layers.0.ln1; --tables buffers "
              "has all paths");
}

// Makes the tables of pictures: each step's timeline, and what each of several saves for backward.
std::vector<Table> drawn_tables(std::span<const MemoryCell> cells) {
  std::vector<Table> out;
  const auto add = [&](Table table, const MemoryCell& cell) {
    table.name += "@" + label_of(cell);
    out.push_back(std::move(table));
  };
  for (const MemoryCell& cell : cells) {
    if (!cell.run.has_program()) continue;
    add(stack_table(cell), cell);
    if (cells.size() > 1) add(saved_by_op_table(cell), cell);
  }
  return out;
}

// Reads a memory snapshot and writes its fingerprint; runs no step.
int run_fingerprint(const MemoryOptions& o, std::span<const std::string> arguments) {
  probe_output(o.output);
  const std::vector<RunSpec> runs = runs_of(o.grid, Takes::kPlanner, DeviceUse::kPlan);
  const RunSpec& run = runs[0];
  if (runs.back().model.name != run.model.name || runs.back().shape.context != run.shape.context) {
    throw Error(ErrorCode::kUsage, "--fingerprint", "a snapshot is of one size and context",
                "give one of each");
  }
  const MemoryTrace trace = read_trace_file(o.fingerprint);
  const Fingerprint found = fingerprint_of(trace, run.model, run.shape);
  write_tables(o.output, "tracestep.fingerprint/1", environment_of(arguments, run), {found.table});
  return 0;
}

void check_published(const MemoryOptions& o) {
  if (o.predict || !o.has_times()) return;
  throw Error(ErrorCode::kUsage, o.times.published.empty() ? "--calibration" : "--published",
              "this step runs, and its bytes are those of the device that it runs on",
              "add --predict, or --sbatch DIR: jobs request what is predicted");
}

// A planned step: its runs, the fields that got planned defaults, and the named device's times.
struct PlannedMemory {
  std::vector<RunSpec> runs;
  std::vector<const RunField*> assumed = {};
  std::optional<TimeSource> source = {};
  std::optional<Predictor> predictor = {};
};

PlannedMemory planned_memory(const MemoryOptions& o, DeviceUse use) {
  if (!o.predict) return {runs_of(o.grid, Takes::kPlanner, use, Ranks::kUsed)};
  RunGrid grid = on_timed_device(o.grid, o.times);
  std::vector<const RunField*> assumed = assume_planned(grid, o.times);
  return {runs_of(grid, Takes::kPlanner, DeviceUse::kPlan, Ranks::kUsed), std::move(assumed)};
}

// Takes the limit and the times of the device that is named, if one is.
void take_source(const MemoryOptions& o, const Json& environment, PlannedMemory& out) {
  if (!o.has_times()) return;
  out.source = time_source(out.runs[0], o.times, environment);
  for (RunSpec& run : out.runs) {
    std::int64_t& limit = run.place.memory_limit_bytes;
    if (limit == 0) limit = out.source->usable_bytes;
  }
  if (out.source->model) out.predictor.emplace(out.source->predictor());
}

int run_memory_command(const MemoryOptions& o, Cells& driver) {
  const std::span<const std::string> arguments = driver.arguments();
  const NamedPath input[] = {{"--fingerprint", o.fingerprint}};
  const NamedPath outputs[] = {{"--snapshot", o.snapshot},
                               {"--snapshot-json", o.snapshot_json},
                               {"--output", o.output.path}};
  check_apart(input, outputs);
  // A prediction touches no device.
  if (o.predict || !o.as.empty()) driver.needs_whole({.place = {.threads = 1}, .has_time = false});
  const bool is_whole = o.predict || !o.as.empty() || !o.fingerprint.empty();
  if (is_whole && driver.lists()) {
    if (o.predict) planned_memory(o, DeviceUse::kPlan);  // throws for a run that cannot be
    return 0;
  }
  if (!o.fingerprint.empty()) return run_fingerprint(o, arguments);
  if (!o.as.empty()) {
    probe_output(o.output);
    return run_as_pytorch({.grid = o.grid,
                           .times = o.times,
                           .output = o.output,
                           .pytorch = o.pytorch,
                           .snapshot = o.snapshot,
                           .snapshot_json = o.snapshot_json},
                          arguments);
  }
  if (!driver.lists()) check_published(o);  // jobs request what is predicted
  PlannedMemory plan = planned_memory(o, driver.use());
  const std::vector<RunSpec>& runs = plan.runs;
  probe_output(o.output);
  check_options(o, runs.size());
  if (o.predict) take_source(o, driver.environment_of(runs[0]), plan);
  Json environment = driver.environment_of(runs[0]);
  std::vector<std::string> notes;
  say_assumed(plan.assumed, runs, environment, notes);
  const bool is_only = runs.size() == 1;
  const std::vector<MemoryCell> cells = cells_of(runs, o, driver);
  if (!driver.makes_tables() || cells.empty()) {
    return driver.finish({.output = o.output, .environment = environment, .wanted = runs.size()});
  }
  const bool is_here = !o.predict && driver.use() == DeviceUse::kRun;
  check_filter(o.filter, cells);
  std::vector<Table> tables{peak_table(cells)};
  std::ranges::move(notes, std::back_inserter(tables[0].notes));
  if (plan.source) tables[0].notes.push_back(plan.source->note);
  if (!is_only) {
    if (o.tables.empty()) tables.push_back(category_grid(cells));
    if (!o.tables.empty() || o.output.format == Format::kJson) {
      tables.push_back(component_table(cells, o.filter));
    }
  } else if (runs_out(cells[0]) && !cells[0].accounted) {
    add_failure(cells[0], o, is_here, plan.predictor ? &*plan.predictor : nullptr, tables);
    if (cells[0].run.status == Status::kOk) add_one_cell(cells[0], o, tables);
  } else {
    add_one_cell(cells[0], o, tables);
  }
  if (is_only && has_snapshot(o) && driver.writes_files()) {
    write_snapshot(o, o.predict ? recorded(runs[0], o, false) : cells[0].run);
  }
  // A file of comma-separated values is one table: the first, or those asked for.
  if (o.output.format == Format::kCsv) {
    if (o.tables.empty()) {
      tables.resize(1);
    } else {
      tables.erase(tables.begin());
    }
  }
  CellTables out{.output = o.output,
                 .schema = "tracestep.memory/2",
                 .environment = environment,
                 .tables = std::move(tables),
                 .drawn = o.output.pictures.empty() ? std::vector<Table>() : drawn_tables(cells),
                 .done = cells.size(),
                 .wanted = runs.size()};
  if (is_only && cells[0].run.status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "memory", cells[0].run.detail);
  }
  return driver.finish(std::move(out));
}

void add_filter(OptionSet& set, BufferFilter& filter) {
  set.value(
      "--without", "NAME[,NAME]",
      fmt::format("leave these categories out of the tables largest, components and buffers: {}",
                  fmt::join(category_names(), ", ")),
      [&filter](const std::string& where, const std::string& text) {
        for (const std::string& name : split_list(where, text)) {
          check_choice(where, name, category_names());
          filter.without.insert(category_named(name));
        }
      });
  set.value("--phase", "NAME[,NAME]",
            fmt::format("in these tables, only buffers that these phases allocate: {}",
                        fmt::join(words_of_all<Phase>(), ", ")),
            [&filter](const std::string& where, const std::string& text) {
              for (const std::string& name : split_list(where, text)) {
                check_choice(where, name, words_of_all<Phase>());
                filter.phases.insert(*named<Phase>(name));
              }
            });
  set.value("--component", "PATH",
            "in these tables and in loads, only buffers of this part of the model, such as attn, "
            "ffn.swiglu or layers.0.ln1",
            [&filter](const std::string&, const std::string& text) { filter.component = text; });
}

}  // namespace

Command memory_command() {
  const auto options = std::make_shared<MemoryOptions>();
  MemoryOptions& o = *options;
  Command command{.name = "memory"};
  OptionSet& set = command.options;
  set.group("What to map");
  set.toggle("--predict", o.predict, "compute the bytes from the program alone; touch no device");
  add_time_options(set, o.times);
  add_run_fields(set, o.grid, Values::kGrid, "cpu; cuda[:N]; null (plans and counts only)");
  set.group("What PyTorch would take");
  set.choice("--as", o.as, {"pytorch"},
             "the bytes of the same step in eager PyTorch: its caching allocator, replayed");
  add_pytorch_options(set, o.pytorch);
  set.group("How it is measured");
  add_protocol_flag(set, o.protocol, "warmup", "steps before the recorded one");
  set.integer("--cost-steps", o.protocol.steps, {0, 1000},
              "pairs of steps with and without recording, to show what recording costs");
  set.group("What to show");
  set.choices("--tables", o.tables, table_names(),
              "tables of one step; by default those that fit on a screen");
  add_filter(set, o.filter);
  set.integer("--largest", o.largest, {1, 100000}, "how many of the largest buffers");
  set.integer("--timeline-rows", o.timeline_rows, {0, 1000000},
              "rows of the timeline; 0: one for every kernel");
  set.path("--snapshot", "FILE", o.snapshot, "the step as a pickle for PyTorch's memory_viz");
  set.names_one_file();
  set.path("--snapshot-json", "FILE", o.snapshot_json, "the same as JSON");
  set.names_one_file();
  set.path("--fingerprint", "FILE", o.fingerprint,
           "read a snapshot, ours or PyTorch's, of a model of this size, and recognise the "
           "implementation by sizes and counts of its allocations");
  set.is_of_all_cells();
  set.integer("--max-entries", o.max_entries, {1, 100'000'000},
              "the most events in a snapshot; the newest are kept");
  set.choice("--account-as", o.account_as, {kCourse},
             "decide what fits by a formula for the peak of another implementation (fp32)");
  set.integer("--saved-scores", o.accounting.saved_scores, {0, 16},
              "tensors of B·H·T² that it saves per layer");
  set.integer("--live-graphs", o.accounting.live_graphs, {1, 16},
              "graphs that it keeps alive at once in mode forward");
  set.toggle("--kept-gradients", o.accounting.kept_gradients,
             "it keeps gradients allocated between steps");
  add_output_options(set, o.output);
  command.run_cells = [options](Cells& cells) {
    options->output.tables = options->tables;
    return run_memory_command(*options, cells);
  };
  return command;
}

}  // namespace tracestep::cli

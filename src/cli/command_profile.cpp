// tracestep profile: shows which kernels a step runs, for which part of the model, and how close
// they come to the device's ceilings.
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "lab/fit/largest.h"
#include "lab/measure/ceilings.h"
#include "lab/profile/chrome_trace.h"
#include "lab/profile/tables.h"
#include "spec/step_program.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

struct ProfileOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 128}}};
  OutputOptions output;
  fs::path trace;
  std::vector<std::string> components;
  Protocol protocol = ProfileSpec().protocol;
  RoundOptions rounds;
  bool largest_context = false;
  bool no_ceilings = false;
  bool executor_spans = false;
};

ProfileSpec spec_of(const RunSpec& run, const ProfileOptions& o) {
  return {.step = run, .protocol = o.protocol, .use_tracer = !o.executor_spans};
}

// Adds each step at the largest context that fits into the memory limit, or without one into nine
// tenths of the device's memory, unless it is among the runs.
void add_largest_contexts(std::vector<RunSpec>& runs, const Json& environment) {
  const Place place = runs[0].place;
  const std::int64_t limit = place.memory_limit_bytes > 0
                                 ? place.memory_limit_bytes
                                 : usable_part(memory_of(place, environment));
  for (std::size_t i = 0, given = runs.size(); i < given; ++i) {
    const auto largest = at_largest_context(runs[i], traits_of(place), limit);
    const auto is_largest = [&](const RunSpec& run) { return key_of(run) == key_of(*largest); };
    if (largest && std::ranges::none_of(runs, is_largest)) runs.push_back(*largest);
  }
}

// Returns the file of a cell's trace: `o.trace`; of several, with the label before its suffix.
fs::path trace_path(const ProfileOptions& o, const RunSpec& run, std::size_t cells) {
  if (cells == 1 || is_stream(o.trace)) return o.trace;
  std::string name = o.trace.filename().string(), label = label_of(run);
  for (char& c : label) c = c == ' ' ? '-' : c;
  return o.trace.parent_path() / name.insert(std::min(name.find('.'), name.size()), "." + label);
}

// Adds the request and the program, which the file of finished cells does not keep, to a profile.
void add_program(const RunSpec& run, const ProfileOptions& o, Profile& profile) {
  profile.spec = spec_of(run, o);
  if (profile.status != Status::kOk || !profile.program.nodes.empty()) return;
  profile.program = step_program(run, traits_of(run.place));
}

std::vector<ProfiledCell> profile_runs(const std::vector<RunSpec>& runs, const ProfileOptions& o,
                                       const Json& environment, Cells& cells) {
  std::map<std::string, Ceilings> ceilings;  // by precision
  std::vector<ProfiledCell> out;
  // All plain times are measured before the first profiler is attached.
  Protocol plain = o.protocol;
  plain.recorded_steps = 0;
  const StopSignal& stop = cells.stop("cells");
  const std::vector<CellResult> timed = measure_steps(
      cells, runs, plain, o.rounds,
      {.more_steps = static_cast<double>(o.protocol.warmup + o.protocol.recorded_steps)});
  if (cells.is_stopped()) return out;
  CellProgress progress(runs.size());
  for (const CellResult& of_cell : timed) {
    const RunSpec& run = of_cell.spec.step;
    const auto ceilings_of_run = [&] {
      const auto [known, is_new] = ceilings.try_emplace(name_of(run.precision));
      if (is_new) progress.aside("measuring the device's ceilings");
      if (is_new) known->second = device_ceilings(run);
      return known->second;
    };
    ProfiledCell result;
    if (!o.no_ceilings) {
      result.ceilings = cells.besides<Ceilings>("ceilings", of_cell.spec, ceilings_of_run);
    }
    progress.begin(fmt::format("profiling {} context {} {}", run.model.name, run.shape.context,
                               name_of(run.mode)));
    result.profile = cells.besides<Profile>("profile", of_cell.spec, [&] {
      return profile_step(make_device, spec_of(run, o), &stop, plain_times(of_cell));
    });
    if (result.profile.status == Status::kInterrupted) break;
    add_program(run, o, result.profile);
    result.work = work_of(result.profile, result.ceilings);
    if (!result.profile.problem.empty()) log_warn("{}", result.profile.problem);
    if (!o.trace.empty() && cells.writes_files() && result.profile.status == Status::kOk) {
      const fs::path path = trace_path(o, run, runs.size());
      write_chrome_trace(result.profile, environment, path);
      log_info("profile: the trace of {} is in {}", label_of(result.profile), path.string());
    }
    out.push_back(std::move(result));
  }
  return out;
}

void add_cell_tables(const ProfileOptions& o, const ProfiledCell& cell, bool is_only,
                     std::vector<Table>& tables) {
  const ComponentFilter filter("--components", o.components, cell.profile.program);
  for (Table table :
       {top_table(cell, filter), lane_table(cell), attention_table(cell),
        kernel_table(cell, filter), kind_table(cell, filter), matrix_table(cell, filter)}) {
    table.title += fmt::format(": {}, {}", label_of(cell.profile), cell.profile.source);
    if (!is_only) table.name += "@" + label_of(cell.profile);
    if (!table.rows.empty()) tables.push_back(std::move(table));
  }
}

// Checks that every step has a program, with these components.
void check_programs(const std::vector<RunSpec>& runs, const std::vector<std::string>& components) {
  for (const RunSpec& run : runs) {
    or_beyond_budget(
        runs.size() == 1, run,
        [&] {
          ComponentFilter("--components", components, step_program(run, traits_of(run.place)));
        },
        [](const BudgetNotMet&) {});
  }
}

int run_profile(const ProfileOptions& o, Cells& driver) {
  std::vector<RunSpec> runs = runs_of(o.grid, Takes::kOracle, driver.use(), Ranks::kUsed);
  const NamedPath outputs[] = {
      {"--trace", o.trace}, {"--tune-file", runs[0].place.tune_file}, {"--output", o.output.path}};
  check_apart({}, outputs);
  probe_output(o.output);
  check_programs(runs, o.components);
  const Json environment = driver.environment_of(runs[0]);
  if (o.largest_context) add_largest_contexts(runs, environment);
  for (const RunSpec& run : runs) {
    if (!o.trace.empty()) check_writable(trace_path(o, run, runs.size()), "trace"_field);
  }
  const std::vector<ProfiledCell> cells = profile_runs(runs, o, environment, driver);
  int failures = 0;
  std::vector<Table> tables{pass_table(cells), clock_table(cells),
                            launch_check_table(cells, &failures)};
  for (const ProfiledCell& cell : cells) {
    if (cell.profile.status == Status::kOk) add_cell_tables(o, cell, runs.size() == 1, tables);
  }
  if (!cells.empty() && cells[0].ceilings.known()) {
    tables.push_back(ceiling_table(cells[0].ceilings));
  }
  CellTables out{.output = o.output,
                 .schema = "tracestep.profile/1",
                 .environment = environment,
                 .tables = std::move(tables),
                 .done = cells.size(),
                 .wanted = runs.size()};
  if (failures > 0) {
    out.last_words = Error(ErrorCode::kFailed, "profile",
                           fmt::format("{} checks of the launches differ", failures),
                           "the table launch_check says which; the other tables rest on them");
  } else if (runs.size() == 1 && cells.size() == 1 &&
             cells[0].profile.status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "profile", cells[0].profile.detail,
                           oom_hint(runs[0], cells[0].profile.lack));
  }
  return driver.finish(std::move(out));
}

}  // namespace

Command profile_command() {
  const auto options = std::make_shared<ProfileOptions>();
  options->grid.offer("mode", {"inference", "step"});
  Command command{.name = "profile"};
  OptionSet& set = command.options;
  set.group("What to profile");
  add_fields(set, options->grid, FieldGroup::kStep, Values::kGrid);
  set.toggle("--largest-context", options->largest_context,
             "each step also at its largest context, a power of two, that is predicted to fit into "
             "--memory-limit or nine tenths of the device's memory");
  set.value("--components", "NAME[,NAME]",
            "only these parts in the tables by kernel: attention, ffn, attn.softmax, ...",
            [options](const std::string& where, const std::string& text) {
              options->components = split_list(where, text);
            });
  set.path("--trace", "FILE", options->trace,
           "also write a Chrome trace, as .json or .json.gz; one per cell");
  set.names_one_file();
  Protocol& protocol = options->protocol;
  set.integer("--steps", protocol.recorded_steps, {1, 1000}, "profiled steps");
  set.integer("--plain-steps", protocol.steps, {1, 1000000},
              "steps timed without recording, before");
  set.integer("--rounds", options->rounds.rounds, {1, 1000},
              "time those in so many rounds over all cells, each prepared anew");
  add_protocol_flag(set, protocol, "warmup");
  set.toggle("--no-ceilings", options->no_ceilings, "do not measure ceilings: no rooflines");
  set.toggle("--executor-spans", options->executor_spans,
             "cuda: the executor's events instead of CUPTI");
  add_fields(set, options->grid, FieldGroup::kModel, Values::kGrid);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kGrid,
             "cpu; cuda[:N]; reference (float64, slow)");
  add_output_options(set, options->output);
  measures_with(command, options, run_profile);
  return command;
}

}  // namespace tracestep::cli

// tracestep bench: how long a step takes, and how many bytes, over a grid of cells.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench_op.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "cli/split_hint.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/report/known_columns.h"
#include "lab/time/cell.h"
#include "lab/time/tables.h"
#include "spec/axes.h"

namespace tracestep::cli {
namespace {

constexpr const char* kBenchSchema = "tracestep.bench/1";
constexpr const char* kWarmupSchema = "tracestep.warmup/1";

struct BenchOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  Protocol protocol;
  RoundOptions rounds;
  OpOptions op;
  bool nsys_hint = false;
  std::vector<std::int64_t> warmup_study;
  std::optional<double> roof;  // TFLOP/s; none: measured; 0: none known
};

// The key of a row: everything that its numbers depend on, apart from the machine.
Json cell_key(const CellSpec& spec, const Json& environment) {
  Json key = key_of(spec);
  add_key(spec.protocol, key);
  key["tool"] = environment.at("tool");
  if (const Json* file = environment.find("tuning_file")) key["tuning_file"] = *file;
  return key;
}

std::vector<Column> columns() {
  std::vector<Column> out = cell_columns();
  out.push_back(data_only(col::cell));
  out.push_back(verdict_column());
  return out;
}

// Sets a row's status, "spill" if it used more memory than the device has, and adds its verdict.
void add_verdict(std::vector<Json>& row, const Json& environment) {
  const std::vector<Column> all = columns();
  const ResultRow measured = ResultRow::of(all, row, environment);
  const std::string status = status_of(measured);
  const bool has_numbers = status == "ok" || status == kSpill;
  const auto at = std::ranges::find(all, "status", &Column::name) - all.begin();
  row[static_cast<std::size_t>(at)] = status;
  row.push_back(has_numbers ? Json(summary_of(judge(measured))) : Json());
}

Table bench_table(const std::vector<CellResult>& results, const Json& environment,
                  const Cells& cells) {
  Table out{.name = "bench", .title = "Time and memory of a step", .columns = columns()};
  for (const CellResult& result : results) {
    std::vector<Json> row = cell_row(result);
    row.push_back(cell_key(result.spec, environment));
    add_verdict(row, environment);
    out.add_row(std::move(row));
  }
  add_verdicts(out, cells.rows_of(out, environment));  // again, beside each other
  show_unusual(out);
  return out;
}

void print_nsys_hint(const std::vector<RunSpec>& runs, std::span<const std::string> arguments) {
  if (!traits_of(runs[0].place).has_own_memory()) {
    throw Error(ErrorCode::kUsage, "--nsys-hint",
                fmt::format("nsys sees what a GPU does; this runs on {}", runs[0].place.device),
                "add --device cuda");
  }
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  write_text(nsys_command(self.empty() ? "tracestep" : self, arguments, runs.size()) + "\n", {});
}

// Measures every run with each number of warm-up steps, each in a process of its own.
int run_warmup_study(const std::vector<RunSpec>& runs, const BenchOptions& options,
                     const Json& environment, Cells& cells) {
  if (options.protocol.max_noise_percent > 0) {
    throw Error(ErrorCode::kUsage, "--max-noise",
                "--warmup-study compares deviations, which needs the same number of steps "
                "everywhere",
                "leave one out");
  }
  const StopSignal& stop = cells.stop("rows");
  const std::vector<CellSpec> specs = product<CellSpec>(
      {{.step = {}, .protocol = options.protocol}},
      {axis<CellSpec>(runs, &CellSpec::step),
       axis<CellSpec>(
           options.warmup_study, [](CellSpec & s) -> auto& { return s.protocol.warmup; })});
  const auto plan_of = [](const CellSpec& spec) {
    const Protocol& p = spec.protocol;
    return plan_of_steps(spec.step, p.warmup + p.steps + p.recorded_steps);
  };
  const std::vector<CellResult> results = cells.measure<CellResult>(
      "warmup", specs, {}, plan_of,
      [&](const CellSpec& spec, const StepObserver& observe) {
        return visit(make_device, spec, &stop, observe);
      },
      true);
  Table table = warmup_table(rows_of(bench_table(results, environment, cells), environment));
  return cells.finish({.output = options.output,
                       .schema = kWarmupSchema,
                       .environment = environment,
                       .tables = {std::move(table)},
                       .done = results.size(),
                       .wanted = specs.size()});
}

void check_sampling(const Protocol& protocol) {
  if (protocol.max_noise_percent <= 0 || protocol.most_steps() >= protocol.steps) return;
  throw Error(ErrorCode::kUsage, "--max-steps",
              fmt::format("{} is less than --steps {}", protocol.max_steps, protocol.steps),
              "with --max-noise, --steps is the least and --max-steps the most");
}

// Refuses options that --rounds does not support, or that several processes cannot share.
void check_together(const BenchOptions& o) {
  const auto refuse = [](const char* flag, const char* why) {
    throw Error(ErrorCode::kUsage, flag, why, "leave one out");
  };
  check_rounds(o.rounds);
  const bool is_study = !o.warmup_study.empty();
  if (o.rounds.rounds > 1 && is_study) refuse("--warmup-study", "--rounds compares cells");
  if (o.rounds.rounds > 1 && o.protocol.max_noise_percent > 0) {
    refuse("--max-noise", "--rounds takes --steps samples in each");
  }
  if (processes() != nullptr && is_study) {
    refuse("--warmup-study", "several processes share this run");
  }
}

// Adds a hint for the first run in fp32, unless the grid shows the gain itself.
void add_split_hint(const std::vector<RunSpec>& runs, const Json& environment, Table& table) {
  const auto is_in_fp32 = [](const RunSpec& run) { return run.precision == Precision(); };
  const auto found = std::ranges::find_if(runs, is_in_fp32);
  if (found == runs.end() ||
      std::ranges::any_of(runs, [](const RunSpec& run) { return run.precision.split; })) {
    return;
  }
  if (std::string hint = split_hint(*found, environment); !hint.empty())
    table.notes.push_back(std::move(hint));
}

// Refuses --part-steps for runs in micro-batches, where forward and backward take turns.
void check_parts(const Protocol& protocol, std::span<const RunSpec> runs) {
  const auto is_in_several = [](const RunSpec& run) { return micro_batches_of(run) > 1; };
  if (protocol.part_steps == 0 || std::ranges::none_of(runs, is_in_several)) return;
  throw Error(ErrorCode::kUsage, "--part-steps",
              "in micro-batches forward and backward take turns, so neither is one part of a step",
              "leave it out, or give --accumulate 1");
}

int run_bench(const BenchOptions& options, Cells& cells) {
  if (options.op.is_used()) {
    check_rounds(options.rounds);
    if (options.nsys_hint || !options.warmup_study.empty()) {
      throw Error(ErrorCode::kUsage, options.nsys_hint ? "--nsys-hint" : "--warmup-study",
                  "it is of a model's step, and --op is one op", "leave one out");
    }
    return run_ops(options.output,
                   op_specs(options.op, options.grid, options.protocol, cells.use()),
                   options.rounds, options.roof, cells);
  }
  if (!options.op.shapes.empty()) {
    throw Error(ErrorCode::kUsage, "--shape", "it is of the operands of an op", "add --op NAME");
  }
  const DeviceUse use = options.nsys_hint ? DeviceUse::kPlan : cells.use();
  const std::vector<RunSpec> runs = runs_of(options.grid, Takes::kAll, use, Ranks::kUsed);
  if (options.nsys_hint) {
    if (cells.makes_tables()) print_nsys_hint(runs, cells.arguments());
    return 0;
  }
  check_sampling(options.protocol);
  check_parts(options.protocol, runs);
  check_together(options);
  const NamedPath outputs[] = {{"--tune-file", runs[0].place.tune_file},
                               {"--output", options.output.path}};
  check_apart({}, outputs);
  probe_output(options.output);
  const Json environment = cells.environment_of(runs[0]);
  if (!options.warmup_study.empty()) return run_warmup_study(runs, options, environment, cells);
  const std::vector<CellResult> results =
      measure_steps(cells, runs, options.protocol, options.rounds, {.roof = options.roof});
  std::vector<Table> tables{bench_table(results, environment, cells)};
  add_split_hint(runs, environment, tables[0]);
  if (options.protocol.part_steps > 0) {
    tables.push_back(step_part_table(rows_of(tables[0], environment)));
  }
  cells.add_beside("step", results, tables);
  CellTables out{.output = options.output,
                 .schema = kBenchSchema,
                 .environment = environment,
                 .tables = std::move(tables),
                 .done = results.size(),
                 .wanted = runs.size() * static_cast<std::size_t>(options.rounds.repeat)};
  if (out.wanted == 1 && out.done == 1 && results[0].status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "bench", results[0].detail,
                           oom_hint(runs[0], results[0].lack));
  }
  return cells.finish(std::move(out));
}

}  // namespace

Command bench_command() {
  const auto options = std::make_shared<BenchOptions>();
  Command command{.name = "bench"};
  OptionSet& set = command.options;
  set.group("What to measure");
  for (const ProtocolField& field : protocol_fields()) add_flag(set, options->protocol, field);
  add_round_options(set, options->rounds);
  add_op_options(set, options->op);
  set.integers("--warmup-study", options->warmup_study, {0, 1000000},
               "instead of a table of cells: each cell with each of these numbers of warm-up "
               "steps, every time in a new process");
  set.is_of_all_cells();
  set.value("--roof", "X",
            "TFLOP/s that the device cannot exceed, for the validity checker; measured before the "
            "first row when left out, 0: none known",
            [options](const std::string& where, const std::string& text) {
              options->roof = parse_real(where, text, 0.0, 1e9);
            });
  set.toggle("--nsys-hint", options->nsys_hint,
             "print the nsys command line that records just the timed steps, and end");
  set.is_of_all_cells();
  add_run_fields(set, options->grid, Values::kGrid,
                 "cpu; cuda[:N]; reference (float64, slow); null (plans and counts only)");
  add_output_options(set, options->output);
  measures_with(command, options, run_bench);
  return command;
}

}  // namespace tracestep::cli

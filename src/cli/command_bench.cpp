// tracestep bench: how long a step takes, and how many bytes, over a grid of cells.
#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench_processes.h"
#include "cli/bench_warmup.h"
#include "cli/beyond_budget.h"
#include "cli/ceilings.h"
#include "cli/command.h"
#include "cli/cuda.h"
#include "cli/devices.h"
#include "cli/nsys_hint.h"
#include "cli/oom_hint.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "cli/remaining_time.h"
#include "cli/resume_file.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/time/cell.h"

namespace tracestep::cli {
namespace {

constexpr const char* kSchema = "tracestep.bench/1";
constexpr const char* kWarmupSchema = "tracestep.warmup/1";

struct BenchOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  std::filesystem::path resume;
  Protocol protocol;
  int processes = 1, rounds = 1, repeat = 1;
  bool nsys_hint = false;
  std::vector<std::int64_t> warmup_study;
  std::optional<double> roof;  // TFLOP/s; none: measured; 0: none known
};

// Everything the numbers of a row depend on, apart from the machine.
Json cell_key(const CellSpec& spec, int processes, const Json& environment) {
  Json key = key_of(spec);
  if (processes > 1) key["processes"] = processes;
  add_key(spec.protocol, key);
  key["tool"] = environment.at("tool");
  if (const Json* file = environment.find("tuning_file")) key["tuning_file"] = *file;
  return key;
}

std::vector<Column> columns() {
  std::vector<Column> out = cell_columns();
  out.push_back({.name = "cell",
                 .kind = ColumnKind::kStructured,
                 .description = "all parameters of the row; --resume finds rows by it",
                 .data_only = true});
  out.push_back(verdict_column());
  return out;
}

struct Measured {
  Table table;
  std::vector<CellResult> in_rounds = {};
  std::string oom_detail = {};  // of the last cell that ran out of memory
};

// 0 for a row without a speed.
double tflops_of(const CellResult& result) {
  if (result.status != Status::kOk || !result.computes || result.wall_ms <= 0) return 0.0;
  return static_cast<double>(result.flops) / result.wall_ms * 1e-9;
}

// Adds the verdict; a row that uses more memory than there is says so as its status.
void add_verdict(std::vector<Json>& row, const Json& environment) {
  const std::vector<Column> all = columns();
  const ResultRow measured = ResultRow::of(all, row, environment);
  const std::string status = status_of(measured);
  const bool has_numbers = status == "ok" || status == kSpill;
  const auto at = std::ranges::find(all, "status", &Column::name) - all.begin();
  row[static_cast<std::size_t>(at)] = status;
  row.push_back(has_numbers ? Json(summary_of(judge(measured))) : Json());
}

// The relative cost of a cell on one device, in FLOPs, with its recorded steps.
double cost_of(const CellSpec& spec) {
  const bool has_backward =
      spec.step.mode == Mode::kForwardBackward || spec.step.mode == Mode::kStep;
  return forward_flops(spec.step.model, static_cast<double>(spec.step.shape.batch),
                       static_cast<double>(spec.step.shape.context)) *
         (has_backward ? 3 : 1) *
         (spec.protocol.warmup + spec.protocol.steps + spec.protocol.recorded_steps +
          spec.protocol.part_steps);
}

// A grid that is being measured: what its cells share.
class GridRun {
 public:
  GridRun(const std::vector<RunSpec>& runs, const BenchOptions& options,
          std::span<const std::string> arguments, const Json& environment, const StopSignal& stop)
      : runs_(runs),
        options_(options),
        arguments_(arguments),
        environment_(environment),
        stop_(stop),
        out_{
            .table = {.name = "bench", .title = "Time and memory of a step", .columns = columns()}},
        finished_(options.resume, out_.table.columns, kSchema, environment) {}

  // The rows of all cells, or of those that were finished when the signal came.
  Measured run() {
    if (options_.rounds > 1) return run_in_rounds();
    std::size_t missing = 0;
    for (const RunSpec& run : runs_) {
      if (finished_.find(key_of_cell(run)) != nullptr) continue;
      remaining_.plan(cost(run));
      ++missing;
    }
    if (finished_.size() > 0) {
      log_info("[--resume] {}: {} row{} there, {} new", options_.resume.string(), finished_.size(),
               finished_.size() == 1 ? "" : "s", missing);
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (const std::vector<Json>* row = finished_.find(key_of_cell(runs_[i]))) {
        out_.table.add_row(*row);
        continue;
      }
      at_ = i;
      if (!add_cell(runs_[i])) break;
    }
    add_verdicts(out_.table, rows_of(out_.table, environment_));  // again, beside each other
    show_unusual(out_.table);
    return std::move(out_);
  }

 private:
  // All cells in rounds: their rows are known when the last round is done.
  Measured run_in_rounds() {
    std::vector<CellSpec> specs;
    for (const RunSpec& run : runs_) {
      for (int copy = 1; copy <= options_.repeat; ++copy) {
        specs.push_back({run, options_.protocol, copy});
      }
    }
    StepRounds cells;
    for (const CellSpec& spec : specs) cells.want(spec);
    const double visits = options_.rounds * static_cast<double>(specs.size());
    cells.measure(
        make_device, {.least = options_.rounds, .most = options_.rounds, .seed = runs_[0].seed},
        &stop_, [&, done = 0](const CellSpec& spec, int round) mutable {
          progress_.update(fmt::format("round {} of {}, {:.0f} %  {}", round, options_.rounds,
                                       100 * done++ / visits, label_of(spec.step)));
        });
    for (const CellSpec& spec : specs) {
      if (const CellResult* found = cells.find(spec)) add_result(spec, *found);
    }
    add_verdicts(out_.table, rows_of(out_.table, environment_));
    show_unusual(out_.table);
    return std::move(out_);
  }
  void add_result(const CellSpec& spec, CellResult result) {
    set_roof(result);
    std::vector<Json> row = cell_row(result);
    row.push_back(cell_key(spec, options_.processes, environment_));
    add_verdict(row, environment_);
    out_.table.add_row(std::move(row));
    out_.in_rounds.push_back(std::move(result));
  }

  Json key_of_cell(const RunSpec& run) const {
    return cell_key(CellSpec{run, options_.protocol}, options_.processes, environment_);
  }
  double cost(const RunSpec& run) const {
    return cost_of(CellSpec{run, options_.protocol}) * options_.processes;
  }

  // False when the signal came.
  bool add_cell(const RunSpec& run) {
    remaining_.begin(cost(run));
    std::optional<std::vector<Json>> row = row_of(run);
    if (!row) return false;
    remaining_.reach(1.0);
    row->push_back(key_of_cell(run));
    add_verdict(*row, environment_);
    finished_.add(*row);
    out_.table.add_row(std::move(*row));
    return true;
  }

  std::optional<std::vector<Json>> row_of(const RunSpec& run) {
    return or_beyond_budget(
        runs_.size() == 1, run,
        [&] { return options_.processes > 1 ? row_of_processes(run) : row_of_this_process(run); },
        [&](const BudgetNotMet& error) {
          return cell_row(cell_beyond_budget(CellSpec{run, options_.protocol}, error));
        });
  }

  // What comes first is seen on a narrow terminal too.
  void show(const std::string& part) {
    progress_.update(fmt::format("{}/{}  {}{}{}{}", at_ + 1, runs_.size(), spaced(remaining_.bar()),
                                 part, spaced(remaining_.text()), label_of(runs_[at_])));
  }

  // Shows between steps how far the cell is. Empty where no progress line is shown.
  StepObserver shown_steps() {
    if (!progress_.is_shown()) return {};
    return [this](std::size_t done, std::size_t most) {
      remaining_.reach(static_cast<double>(done) / static_cast<double>(most));
      show(fmt::format("step {} of {}  ", done + 1, most));
    };
  }

  // The cells of cell_columns().
  std::optional<std::vector<Json>> row_of_this_process(const RunSpec& run) {
    show("");
    if (!options_.roof) roof_.tflops(run);  // before the row, not in the middle of it
    CellResult result =
        measure_cell(make_device, CellSpec{run, options_.protocol}, &stop_, shown_steps());
    if (result.status == Status::kInterrupted) return {};
    set_roof(result);
    return cell_row(result);
  }

  void set_roof(CellResult& result) {
    const RunSpec& run = result.spec.step;
    result.roof_tflops = options_.roof ? *options_.roof : roof_.tflops_for(run, tflops_of(result));
    if (!options_.roof) result.roof_others_cores = roof_.others_cores(run);
    if (result.status == Status::kOutOfMemory) out_.oom_detail = result.detail;
  }

  std::optional<std::vector<Json>> row_of_processes(const RunSpec& run) {
    step_program(run, traits_of(run.place));  // throws here what would end the other processes
    const std::optional<Json> merged = processes_row(
        run, options_.processes, arguments_, options_.roof, stop_, [this](int process) {
          remaining_.reach((process - 1.0) / options_.processes);
          show(fmt::format("process {} of {}  ", process, options_.processes));
        });
    if (!merged) return {};
    std::vector<Json> out;
    for (const Column& column : cell_columns()) {
      const Json* cell = merged->find(column.name);
      out.push_back(cell == nullptr ? Json() : *cell);
    }
    if (const Json& detail = merged->at("detail"); detail.is_string()) {
      out_.oom_detail = detail.as_string();
    }
    return out;
  }

  const std::vector<RunSpec>& runs_;
  const BenchOptions& options_;
  const std::span<const std::string> arguments_;
  const Json& environment_;
  const StopSignal& stop_;
  Measured out_;
  ResumeFile finished_;
  Roof roof_;
  ProgressLine progress_;
  RemainingTime remaining_;
  std::size_t at_ = 0;  // the run under way
};

void print_nsys_hint(const std::vector<RunSpec>& runs, std::span<const std::string> arguments) {
  if (!cuda_index(runs[0].place.device)) {
    throw Error(ErrorCode::kUsage, "--nsys-hint",
                fmt::format("nsys sees what a GPU does; this runs on {}", runs[0].place.device),
                "add --device cuda");
  }
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  write_text(nsys_command(self.empty() ? "tracestep" : self, arguments, runs.size()) + "\n", {});
}

int run_warmup_study(const std::vector<RunSpec>& runs, const BenchOptions& options,
                     std::span<const std::string> arguments) {
  const auto refuse = [](const char* flag, const char* why) {
    throw Error(ErrorCode::kUsage, flag, fmt::format("--warmup-study {}", why), "leave one out");
  };
  if (!options.resume.empty()) refuse("--resume", "measures every row anew");
  if (options.processes > 1) refuse("--processes", "has one process for each number of steps");
  if (options.protocol.max_noise_percent > 0) {
    refuse("--max-noise", "compares deviations, which needs the same number of steps everywhere");
  }
  const Json environment = environment_of(arguments, runs[0]);
  const StopSignal stop("the rows measured so far are written");
  Table table = warmup_study(runs, options.warmup_study, arguments, &stop);
  const std::size_t done = table.rows.size(), all = runs.size() * options.warmup_study.size();
  write_tables(options.output, kWarmupSchema, environment, {std::move(table)});
  return status_after(done, all, stop);
}

void check_sampling(const Protocol& protocol) {
  if (protocol.max_noise_percent <= 0 || protocol.most_steps() >= protocol.steps) return;
  throw Error(ErrorCode::kUsage, "--max-steps",
              fmt::format("{} is less than --steps {}", protocol.max_steps, protocol.steps),
              "with --max-noise, --steps is the least and --max-steps the most");
}

void check_rounds(const BenchOptions& o) {
  if (o.repeat > 1 && o.rounds == 1) {
    throw Error(ErrorCode::kUsage, "--repeat", "copies of a cell are measured in rounds",
                "add --rounds 9");
  }
  if (o.rounds == 1) return;
  const auto refuse = [](const char* flag, const char* why) {
    throw Error(ErrorCode::kUsage, flag, fmt::format("--rounds {}", why), "leave one out");
  };
  if (!o.resume.empty()) refuse("--resume", "knows a row when all rounds are done");
  if (o.processes > 1) refuse("--processes", "is of one process");
  if (!o.warmup_study.empty()) refuse("--warmup-study", "compares cells");
  if (o.protocol.max_noise_percent > 0) refuse("--max-noise", "takes --steps samples in each");
}

// What several processes cannot do together.
void check_alone(const BenchOptions& options) {
  const auto refuse = [](const char* flag) {
    throw Error(ErrorCode::kUsage, flag, "several processes share this run", "leave it out");
  };
  if (!options.resume.empty()) refuse("--resume");
  if (options.processes > 1) refuse("--processes");
  if (!options.warmup_study.empty()) refuse("--warmup-study");
}

int run_bench(const BenchOptions& options, std::span<const std::string> arguments) {
  const DeviceUse use = options.nsys_hint ? DeviceUse::kPlan : DeviceUse::kRun;
  const std::vector<RunSpec> runs =
      runs_of(options.grid, {"cpu", "cuda", "reference", "null"}, use, Ranks::kUsed);
  if (options.nsys_hint) return print_nsys_hint(runs, arguments), 0;
  check_sampling(options.protocol);
  check_rounds(options);
  if (processes() != nullptr) check_alone(options);
  const NamedPath outputs[] = {{"--resume", options.resume},
                               {"--tune-file", runs[0].place.tune_file},
                               {"--output", options.output.path}};
  check_apart({}, outputs);
  probe_output(options.output);
  if (!options.warmup_study.empty()) return run_warmup_study(runs, options, arguments);
  const Json environment = environment_of(arguments, runs[0]);
  const StopSignal stop("the rows measured so far are written");
  Measured measured = GridRun(runs, options, arguments, environment, stop).run();
  std::vector<Table> tables{measured.table};
  if (options.protocol.part_steps > 0) {
    tables.push_back(step_part_table(rows_of(measured.table, environment)));
  }
  const std::size_t wanted = runs.size() * static_cast<std::size_t>(options.repeat);
  if (Table beside = beside_table(measured.in_rounds); !beside.rows.empty()) {
    tables.push_back(std::move(beside));
  }
  write_tables(options.output, kSchema, environment, std::move(tables));
  if (measured.table.rows.size() < wanted) {
    return status_after(measured.table.rows.size(), wanted, stop,
                        options.resume.empty() ? "; with --resume FILE a grid can go on" : "");
  }
  if (wanted > 1 || measured.oom_detail.empty()) return 0;
  throw Error(ErrorCode::kOutOfMemory, "bench", measured.oom_detail,
              oom_hint(runs[0], measured.oom_detail));
}

JobPlan plan_of(const BenchOptions& o) {
  const Protocol& p = o.protocol;
  const bool is_by_noise = p.max_noise_percent > 0;
  const double repeats = std::max<double>(o.processes * o.rounds * o.repeat,
                                          static_cast<double>(o.warmup_study.size()));
  std::vector<RunSpec> runs =
      runs_of(o.grid, {"cpu", "cuda", "reference", "null"}, DeviceUse::kPlan, Ranks::kUsed);
  const double count = static_cast<double>(runs.size());
  JobPlan out = plan_of_runs(std::move(runs), repeats * (p.warmup + (is_by_noise ? 0 : p.steps) +
                                                         p.recorded_steps + p.part_steps));
  if (is_by_noise) out.seconds = count * repeats * p.max_seconds;
  return out;
}

}  // namespace

Command bench_command() {
  const auto options = std::make_shared<BenchOptions>();
  Command command{
      .name = "bench",
      .summary = "how long does a step take, and how many bytes",
      .details =
          "Measures every combination of sizes, contexts, modes, precisions, granularities and "
          "forms of attention: warm-up steps apart, one sample per step, by four clocks, with "
          "the peak of requested memory beside the predicted one. A row that runs out of "
          "memory says oom, and the sweep goes on; Ctrl-C ends it with the rows that are "
          "done. inference keeps nothing for backward; "
          "forward keeps what backward would need. Below the table stands what the validity "
          "checker says of the rows: docs/timing.md lists its checks.",
      .examples = {{"--size small --context 128 --mode forward,forward-backward,step",
                    "the three ways to run a small model"},
                   {"--size tiny --context 128 --ops primitive,fused --format markdown",
                    "what composite kernels save"},
                   {"--size tiny --processes 8 --format json --output before.json",
                    "for compare, which needs to know what a new process alone changes"},
                   {"--size tiny --executor eager,compiled --steps 3 --rounds 9",
                    "which is faster: a verdict"},
                   {"--size tiny --max-noise 1", "as many steps as a median within 1 % takes"},
                   {"--size tiny --warmup-study 0,1,2,5", "what the first steps cost, and why"},
                   {"--size small,medium,large --context 128,256 --resume grid.jsonl",
                    "a grid that can be interrupted and called again"}}};
  OptionSet& set = command.options;
  set.group("What to measure");
  for (const ProtocolField& field : protocol_fields()) add_flag(set, options->protocol, field);
  set.integer("--processes", options->processes, {1, 1000},
              "measure each cell in so many processes, one after the other: what a new process "
              "alone changes is then part of the noise (compare)");
  set.integer("--rounds", options->rounds, {1, 1000},
              "measure all cells in so many rounds, in an order drawn by lot, each cell prepared "
              "anew: --steps samples in each. Cells are then compared with the first; nine "
              "rounds can tell");
  set.integer("--repeat", options->repeat, {1, 100},
              "with --rounds, each cell so many times as cells of their own: what copies differ by "
              "is noise");
  set.integers("--warmup-study", options->warmup_study, {0, 1000000},
               "instead of a table of cells: each cell with each of these numbers of warm-up "
               "steps, every time in a new process");
  set.value("--roof", "X",
            "TFLOP/s that the device cannot exceed, for the validity checker; measured before the "
            "first row when left out, 0: none known",
            [options](const std::string& where, const std::string& text) {
              options->roof = parse_real(where, text, 0.0, 1e9);
            });
  set.path("--resume", "FILE", options->resume,
           "keep finished rows here and skip those that are there (JSON lines, or a JSON result)");
  set.toggle("--nsys-hint", options->nsys_hint,
             "print the nsys command line that records just the timed steps, and end");
  add_fields(set, options->grid, FieldGroup::kStep, Values::kGrid);
  add_fields(set, options->grid, FieldGroup::kModel, Values::kGrid);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kGrid,
             "cpu; cuda[:N]; reference (float64, slow); null (plans and counts only)");
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_bench(*options, arguments);
  };
  command.plan = [options] { return plan_of(*options); };
  command.divided = axis_flags();
  return command;
}

}  // namespace tracestep::cli
